// Views of memory that someone else owns. A view is a value; copying it copies no data.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "common/base/status_macros.h"
#include "kernels/core/formats.h"

namespace hearth::kernels {

inline constexpr int kMaxRank = 4;

// Whether elements of a format lie in memory as T: floats and doubles as themselves alone, whole
// numbers and codes as integers of their width, structs as bytes or as 64-bit words. A type of one
// byte reads the bytes of any format.
template <typename T>
constexpr bool IsStoredAs(DType dtype) {
  if constexpr (sizeof(T) == 1) {
    return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    return dtype == DTypeOf<T>();
  } else if constexpr (std::is_integral_v<T>) {
    return dtype != DType::kF32 && dtype != DType::kF64 &&
           DTypeBits(dtype) == 8 * static_cast<int>(sizeof(T));
  } else {
    return dtype == DType::kU8 || (dtype == DType::kI64 && sizeof(T) % 8 == 0);
  }
}

// Row-major, contiguous. An empty view (data == nullptr) stands for an absent optional operand.
// Inputs are views too: what an op writes is said in its header, not in the type.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape = {0, 0, 0, 0};

  TensorView() = default;
  TensorView(void* data_in, DType dtype_in, std::initializer_list<int64_t> shape_in)
      : data(data_in), dtype(dtype_in) {
    for (int64_t extent : shape_in) {
      shape[static_cast<size_t>(rank++)] = extent;
    }
  }
  // For inputs held as const: ops never write through a view documented as an input.
  TensorView(const void* data_in, DType dtype_in, std::initializer_list<int64_t> shape_in)
      : TensorView(const_cast<void*>(data_in), dtype_in, shape_in) {}

  bool empty() const { return data == nullptr; }
  int64_t dim(int i) const { return shape[static_cast<size_t>(i)]; }
  int64_t numel() const {
    int64_t n = rank > 0 ? 1 : 0;
    for (int i = 0; i < rank; ++i) {
      n *= dim(i);
    }
    return n;
  }
  // The view as a matrix: all but the last dimension folded into rows.
  int64_t cols() const { return rank > 0 ? dim(rank - 1) : 0; }
  int64_t rows() const { return cols() > 0 ? numel() / cols() : 0; }
  size_t bytes() const { return static_cast<size_t>(DTypeBytes(dtype, numel())); }

  // The elements, which must be stored as T; debug builds check it. Null for an empty view.
  template <typename T>
  T* as() const {
    HEARTH_DCHECK(empty() || IsStoredAs<T>(dtype), "the view's elements are of another type");
    return static_cast<T*>(data);
  }
};

// Elements [begin, begin + count) of a flat view. In a format of 4 bits `begin` must be even.
inline TensorView Slice(const TensorView& flat, int64_t begin, int64_t count) {
  return {
      static_cast<void*>(flat.as<uint8_t>() + DTypeBytes(flat.dtype, begin)), flat.dtype, {count}};
}

// A view of `count` elements of a C++ array; dtype from T.
template <typename T>
TensorView View(T* data, std::initializer_list<int64_t> shape) {
  return TensorView(static_cast<void*>(data), DTypeOf<T>(), shape);
}
template <typename T>
TensorView View(const T* data, std::initializer_list<int64_t> shape) {
  return TensorView(static_cast<const void*>(data), DTypeOf<T>(), shape);
}

// "fp32[128, 64]"
std::string DebugString(const TensorView& view);

// Optional quantised outputs of an op, beside or instead of its plain output; the same on every
// device. With v = the value rounded to the format of the plain output:
//   rows[i, j] = columns[j, i] = round_dtype(v[i, j] * *scale), to nearest even, saturating
//   *amax      = max(*amax, max |v|); any NaN makes it NaN
// The consumer multiplies by the reciprocal of *scale (GemmArgs::scale_a, scale_b).
struct QuantView {
  DType dtype = DType::kE4M3;    // kE4M3 or kE5M2
  void* rows = nullptr;          // [R, C] of `dtype`, row-major; absent: not wanted
  void* columns = nullptr;       // [C, R], the transpose; absent: not wanted
  const float* scale = nullptr;  // one float on the tensors' device; present if rows or columns are
  float* amax = nullptr;         // one float on the tensors' device, >= 0 or NaN; absent: unwanted

  constexpr bool empty() const { return rows == nullptr && columns == nullptr && amax == nullptr; }
  constexpr bool has_values() const { return rows != nullptr || columns != nullptr; }
};

}  // namespace hearth::kernels
