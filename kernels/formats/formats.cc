#include "kernels/formats/formats.h"

namespace hearth::kernels {

float RoundToFormat(float value, DType format) {
  switch (format) {
    case DType::kBF16:
      return RoundBf16(value);
    case DType::kF16:
      return DecodeF16(EncodeF16(value));
    case DType::kE4M3:
      return DecodeE4m3(EncodeE4m3(value));
    case DType::kE5M2:
      return DecodeE5m2(EncodeE5m2(value));
    default:
      return value;
  }
}

}  // namespace hearth::kernels
