#include "kernels/formats/formats.h"

namespace hearth::kernels {
namespace {

// A narrow format by its layout. `max_code` is the code of the largest finite magnitude.
struct Layout {
  int exponent_bits;
  int mantissa_bits;
  uint32_t max_code;
  uint32_t nan_code;
  bool saturates;  // else max_code + 1 is infinity
};

constexpr Layout kF16Layout = {5, 10, 0x7BFF, 0x7E00, false};
constexpr Layout kE4m3Layout = {4, 3, 0x7E, 0x7F, true};
constexpr Layout kE5m2Layout = {5, 2, 0x7B, 0x7F, true};

uint32_t Encode(float value, const Layout& layout) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 31) << (layout.exponent_bits + layout.mantissa_bits);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) {
    return sign | layout.nan_code;
  }
  const int bias = (1 << (layout.exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  // Below the smallest normal the spacing is constant: more of the significand is shifted out.
  const int min_exponent = 1 - bias;
  const int extra = exponent < min_exponent ? min_exponent - exponent : 0;
  const int shift = 23 - layout.mantissa_bits + extra;
  uint32_t code = 0;
  if (shift < 32 && magnitude >= 0x00800000) {
    const uint32_t significand = (magnitude & 0x7FFFFF) | 0x800000;
    const uint32_t half = 1U << (shift - 1);
    const uint32_t kept = significand >> shift;
    const uint32_t rest = significand & ((1U << shift) - 1);
    const uint32_t rounded = kept + ((rest > half || (rest == half && (kept & 1) != 0)) ? 1 : 0);
    // The implicit bit and a carry out of the significand both add to the exponent field.
    const int field = extra > 0 ? 0 : exponent + bias - 1;
    code = (static_cast<uint32_t>(field) << layout.mantissa_bits) + rounded;
  }
  if (code > layout.max_code) {
    code = layout.saturates ? layout.max_code : layout.max_code + 1;
  }
  return sign | code;
}

float Decode(uint32_t code, const Layout& layout) {
  const uint32_t magnitude_bits = layout.exponent_bits + layout.mantissa_bits;
  const uint32_t sign = (code >> magnitude_bits) << 31;
  const uint32_t magnitude = code & ((1U << magnitude_bits) - 1);
  if (magnitude > layout.max_code) {
    const bool infinite = magnitude == layout.max_code + 1 && layout.nan_code != magnitude;
    return std::bit_cast<float>(sign | (infinite ? 0x7F800000U : 0x7FC00000U));
  }
  const int bias = (1 << (layout.exponent_bits - 1)) - 1;
  const uint32_t field = magnitude >> layout.mantissa_bits;
  const uint32_t mantissa = magnitude & ((1U << layout.mantissa_bits) - 1);
  if (field == 0) {
    // Subnormal: mantissa * 2^(1 - bias - mantissa_bits), exact in float.
    const int scale = 127 + 1 - bias - layout.mantissa_bits;
    const float unit = std::bit_cast<float>(static_cast<uint32_t>(scale) << 23);
    const float value = static_cast<float>(mantissa) * unit;
    return sign != 0 ? -value : value;
  }
  const uint32_t exponent = field + 127U - static_cast<uint32_t>(bias);
  return std::bit_cast<float>(sign | (exponent << 23) | (mantissa << (23 - layout.mantissa_bits)));
}

}  // namespace

uint16_t EncodeF16(float value) {
  return static_cast<uint16_t>(Encode(value, kF16Layout));
}
float DecodeF16(uint16_t code) {
  return Decode(code, kF16Layout);
}
uint8_t EncodeE4m3(float value) {
  return static_cast<uint8_t>(Encode(value, kE4m3Layout));
}
float DecodeE4m3(uint8_t code) {
  return Decode(code, kE4m3Layout);
}
uint8_t EncodeE5m2(float value) {
  return static_cast<uint8_t>(Encode(value, kE5m2Layout));
}
float DecodeE5m2(uint8_t code) {
  return Decode(code, kE5m2Layout);
}

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
