// Element formats of tensors: one list for job specs, kernels and plans. C++17, for CUDA files too.
#pragma once

#include <cstdint>
#include <string_view>

namespace hearth::formats {

// Append only: the numbers take part in keys that outlive a process.
enum class DType : uint8_t {
  kF64 = 0,
  kF32 = 1,
  kBF16 = 2,
  kF16 = 3,
  kE4M3 = 4,  // FP8 e4m3fn: max 448, no infinity
  kE5M2 = 5,  // FP8 e5m2: max 57344
  kE2M1 = 6,  // FP4, two per byte, low nibble = even element
  kE8M0 = 7,  // power-of-two scale byte, 2^(b-127)
  kU8 = 8,
  kU16 = 9,
  kI32 = 10,
  kU32 = 11,
  kI64 = 12,
};

// "fp64", "fp32", "bf16", "fp16", "e4m3", "e5m2", "e2m1", "e8m0", "u8", "u16", "i32", "u32", "i64".
std::string_view DTypeName(DType dtype);

// Inverse of DTypeName; false, and `dtype` as it was, when `name` is none of them.
bool ParseDType(std::string_view name, DType& dtype);

// Bits of one element.
constexpr int DTypeBits(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 64;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 32;
    case DType::kBF16:
    case DType::kF16:
    case DType::kU16:
      return 16;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
    case DType::kU8:
      return 8;
    case DType::kE2M1:
      return 4;
  }
  return 0;
}

// Bytes of `elements` contiguous elements, >= 0, rounded up to a whole byte.
constexpr int64_t DTypeBytes(DType dtype, int64_t elements) {
  return (elements * DTypeBits(dtype) + 7) / 8;
}

// Largest finite magnitude of an FP8 format, kE4M3 or kE5M2.
constexpr float MaxFinite(DType dtype) {
  return dtype == DType::kE4M3 ? 448.0F : 57344.0F;
}

// The DType of a C++ storage type.
template <typename T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<double>() {
  return DType::kF64;
}
template <>
constexpr DType DTypeOf<float>() {
  return DType::kF32;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kU8;
}

}  // namespace hearth::formats
