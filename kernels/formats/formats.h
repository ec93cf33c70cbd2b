// Scalar encode and decode of the narrow float formats, bit-exact with PyTorch's casts and (for
// FP8) with cvt.rn.satfinite. Round to nearest, ties to even.
//   bf16, fp16 : overflow to infinity, NaN stays (quiet) NaN
//   e4m3, e5m2 : finite values and infinities saturate to +-448, +-57344; NaN stays NaN
// FP16 and narrower are in formats/narrow.h, which device code can read too.
// For arrays use RoundTo and Widen (kernels/round), which are vectorised.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/formats/narrow.h"

namespace hearth::kernels {

inline uint16_t EncodeBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

// Rounded up with the probability of the part that is cut off: `word` holds 16 random bits at its
// low end. Infinities and NaN as EncodeBf16; the expectation over `word` is the value itself, but
// above the largest finite one, where it may become infinity.
inline uint16_t EncodeBf16Stochastic(float value, uint32_t word) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool finite = (bits & 0x7F800000) != 0x7F800000;
  return finite ? static_cast<uint16_t>((bits + (word & 0xFFFF)) >> 16) : EncodeBf16(value);
}

inline float DecodeBf16(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

// DecodeBf16(EncodeBf16(value)), branch-free so that loops over it vectorise.
inline float RoundBf16(float value) {
  return DecodeBf16(EncodeBf16(value));
}

// `value` rounded to `format` and widened again; kF32 and kF64 return it unchanged.
// Formats: kF64, kF32, kBF16, kF16, kE4M3, kE5M2.
float RoundToFormat(float value, DType format);

}  // namespace hearth::kernels
