#include "kernels/core/dtype.h"

namespace hearth::kernels {

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kE4M3:
      return "e4m3";
    case DType::kE5M2:
      return "e5m2";
    case DType::kE2M1:
      return "e2m1";
    case DType::kE8M0:
      return "e8m0";
    case DType::kU8:
      return "u8";
    case DType::kU16:
      return "u16";
    case DType::kI32:
      return "i32";
    case DType::kU32:
      return "u32";
    case DType::kI64:
      return "i64";
  }
  return "unknown";
}

}  // namespace hearth::kernels
