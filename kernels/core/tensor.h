// Views of memory that someone else owns. A view is a value; copying it copies no data.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/core/dtype.h"

namespace hearth::kernels {

inline constexpr int kMaxRank = 4;

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
  size_t bytes() const { return DTypeBytes(dtype, numel()); }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// A view of `count` elements of a C++ array; dtype from T.
template <typename T>
TensorView View(T* data, std::initializer_list<int64_t> shape) {
  return TensorView(static_cast<void*>(data), DTypeOf<T>(), shape);
}
template <typename T>
TensorView View(const T* data, std::initializer_list<int64_t> shape) {
  return TensorView(static_cast<const void*>(data), DTypeOf<T>(), shape);
}

// "f32[128, 64]"
std::string DebugString(const TensorView& view);

// How the scales of a quantised tensor are laid out.
enum class QuantLayout : uint8_t {
  kTensor,      // one scale for the tensor
  kBlock1x16,   // NVFP4: E4M3 scale per 16 along the contraction axis
  kBlock1x32,   // MXFP8: E8M0 scale per 32 along the contraction axis
  kBlock16x16,  // one scale per tile, replicated in the 1x16 layout
};

// Optional quantised output of an op, beside or instead of its plain output.
// No CPU op writes one yet: a non-empty QuantView is answered with kUnimplemented.
struct QuantView {
  void* values = nullptr;         // `dtype` elements
  DType dtype = DType::kE4M3;     // kE4M3, kE5M2 or kE2M1
  void* block_scales = nullptr;   // by `layout`; null for kTensor
  float* tensor_scale = nullptr;  // device scalar: value = quantised * block scale * tensor scale
  QuantLayout layout = QuantLayout::kTensor;
  bool transposed = false;  // values hold the transpose of the logical matrix
  bool swizzled = false;    // block scales in cuBLASLt's 512-byte tiles

  bool empty() const { return values == nullptr; }
};

}  // namespace hearth::kernels
