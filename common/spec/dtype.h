// Number formats that specs name. The engine maps them to its own storage types.
#pragma once

#include <cstdint>
#include <string_view>

namespace hearth::spec {

enum class DType : uint8_t {
  kFp32,
  kBf16,
  kFp8E4M3,
  kFp8E5M2,
  kFp4E2M1,
  kE8M0,  // power-of-two block scale of the MX formats
};

// "fp32", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "e8m0".
std::string_view DTypeName(DType dtype);

// Bits of one element.
int DTypeBits(DType dtype);

// Bytes of `elements` elements, rounded up to a whole byte; elements >= 0.
int64_t DTypeBytes(DType dtype, int64_t elements);

// Inverse of DTypeName; false when `name` is none of them.
bool ParseDType(std::string_view name, DType& dtype);

}  // namespace hearth::spec
