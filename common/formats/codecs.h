// Scalar encode and decode of the formats of 16 bits and less, one source for host and device
// (C++17): the same bits everywhere, those of PyTorch's casts and (for FP8) of cvt.rn.satfinite.
// Arithmetic that could be contracted goes through MulRn and its like, which round each result
// once. For arrays use RoundTo and Widen (kernels/round), which are vectorised.
//
// clang-format off
//   format  sign exp man  bias  largest  least normal  least > 0   infinity, NaN
//   bf16      1   8    7   127    3.39e38     2^-126      2^-133   both
//   f16       1   5   10    15    65504       2^-14       2^-24    both
//   e4m3      1   4    3     7      448        2^-6        2^-9    only NaN
//   e5m2      1   5    2    15    57344       2^-14       2^-16    both
//   e2m1      1   2    1     1        6           1         1/2    none
//   e8m0      0   8    0   127    2^127           -      2^-127    only NaN (0xFF); no zero
//
//   nearest    : ties to the even code. bf16 and f16 overflow to infinity; e4m3, e5m2 and e2m1
//                saturate, infinities too. NaN stays NaN with its sign; in e2m1 it becomes +6, as
//                in cvt.rn.satfinite: a caller that may meet one looks before it encodes
//   stochastic : to one of the two neighbours, up with the probability of the part that is cut off,
//                to a 2^-16 of the step: u = (r + 1/2) 2^-16 with 16 random bits r is centred, so
//                the mean over r is the value itself. Magnitudes above the largest saturate: that
//                is the one bias. NaN as above (e4m3, e5m2: without its sign)
//   zeros      : keep their sign
// clang-format on
// Sources: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0.
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

#include "common/formats/dtype.h"
#include "common/formats/hd.h"

// E2M1 and UE8M0 conversions are instructions of the architecture-specific targets of Blackwell.
#ifdef __CUDA_ARCH_FEAT_SM100_ALL
#define HEARTH_E2M1_INSTRUCTIONS 1
#endif
#ifdef __CUDA_ARCH_FEAT_SM103_ALL
#define HEARTH_E2M1_INSTRUCTIONS 1
#endif
#ifdef __CUDA_ARCH_FEAT_SM120_ALL
#define HEARTH_E2M1_INSTRUCTIONS 1
#endif
#ifdef __CUDA_ARCH_FEAT_SM121_ALL
#define HEARTH_E2M1_INSTRUCTIONS 1
#endif

namespace hearth::formats {

HEARTH_HD inline uint32_t FloatBits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
HEARTH_HD inline float BitsFloat(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// One rounding each, never contracted.
HEARTH_HD inline float MulRn(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
HEARTH_HD inline float AddRn(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
HEARTH_HD inline float SubRn(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}
HEARTH_HD inline float DivRn(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// A format by its layout. kMaxCode is the code of the largest finite magnitude.
struct F16Format {
  static constexpr int kExponentBits = 5;
  static constexpr int kMantissaBits = 10;
  static constexpr uint32_t kMaxCode = 0x7BFF;
  static constexpr uint32_t kNanCode = 0x7E00;
  static constexpr bool kSaturates = false;  // kMaxCode + 1 is infinity
};
struct E4m3Format {
  static constexpr int kExponentBits = 4;
  static constexpr int kMantissaBits = 3;
  static constexpr uint32_t kMaxCode = 0x7E;
  static constexpr uint32_t kNanCode = 0x7F;
  static constexpr bool kSaturates = true;
};
struct E5m2Format {
  static constexpr int kExponentBits = 5;
  static constexpr int kMantissaBits = 2;
  static constexpr uint32_t kMaxCode = 0x7B;
  static constexpr uint32_t kNanCode = 0x7F;
  static constexpr bool kSaturates = true;
};

// A finite magnitude (bits without the sign) before it is rounded: code + rest / 2^shift units of
// the last place, 0 < shift < 41.
struct CutMagnitude {
  uint32_t code = 0;
  uint32_t rest = 0;
  int shift = 1;
};

template <typename F>
HEARTH_HD inline CutMagnitude Cut(uint32_t magnitude) {
  constexpr int kBias = (1 << (F::kExponentBits - 1)) - 1;
  constexpr int kLeastExponent = 1 - kBias;
  constexpr int kShift = 23 - F::kMantissaBits;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  CutMagnitude cut;
  // What lies so far below the least code rounds to zero whatever the random bits.
  if (magnitude < 0x00800000U || exponent < kLeastExponent - (40 - kShift)) {
    return cut;
  }
  // Below the least normal the spacing is constant: more of the significand is cut off.
  const int extra = exponent < kLeastExponent ? kLeastExponent - exponent : 0;
  const uint32_t significand = (magnitude & 0x7FFFFFU) | 0x800000U;
  cut.shift = kShift + extra;
  const uint32_t kept = cut.shift < 32 ? significand >> cut.shift : 0;
  cut.rest = cut.shift < 32 ? significand & ((1U << cut.shift) - 1) : significand;
  // The implicit bit and a carry out of the significand both add to the exponent field.
  const int field = extra > 0 ? 0 : exponent + kBias - 1;
  cut.code = (static_cast<uint32_t>(field) << F::kMantissaBits) + kept;
  return cut;
}

template <typename F>
HEARTH_HD inline uint32_t EncodeNarrow(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 31) << (F::kExponentBits + F::kMantissaBits);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return sign | F::kNanCode;
  }
  const CutMagnitude cut = Cut<F>(magnitude);
  const uint64_t half = uint64_t{1} << (cut.shift - 1);
  const bool up = cut.rest > half || (cut.rest == half && (cut.code & 1) != 0);
  // A carry out of the mantissa gives the first code of the next exponent: codes are in the order
  // of their values.
  uint32_t code = cut.code + (up ? 1 : 0);
  if (code > F::kMaxCode) {
    code = F::kSaturates ? F::kMaxCode : F::kMaxCode + 1;
  }
  return sign | code;
}

// `random`: 16 bits, uniform.
template <typename F>
HEARTH_HD inline uint32_t EncodeNarrowStochastic(float value, uint32_t random) {
  static_assert(F::kSaturates);
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 31) << (F::kExponentBits + F::kMantissaBits);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return F::kNanCode;
  }
  const CutMagnitude cut = Cut<F>(magnitude);
  // rest / 2^shift + (random + 1/2) / 2^16 >= 1
  const uint64_t centred = 2 * uint64_t{random & 0xFFFFU} + 1;
  const bool up = (uint64_t{cut.rest} << 17) + (centred << cut.shift) >= uint64_t{1}
                                                                             << (cut.shift + 17);
  const uint32_t code = cut.code + (up ? 1 : 0);
  return sign | (code > F::kMaxCode ? F::kMaxCode : code);
}

template <typename F>
HEARTH_HD inline float DecodeNarrow(uint32_t code) {
  constexpr int kMagnitudeBits = F::kExponentBits + F::kMantissaBits;
  constexpr int kBias = (1 << (F::kExponentBits - 1)) - 1;
  const uint32_t sign = (code >> kMagnitudeBits) << 31;
  const uint32_t magnitude = code & ((1U << kMagnitudeBits) - 1);
  if (magnitude > F::kMaxCode) {
    // E4M3 has no infinity: the code after its largest is the NaN.
    const bool infinite = magnitude == F::kMaxCode + 1 && F::kNanCode != magnitude;
    return BitsFloat(sign | (infinite ? 0x7F800000U : 0x7FC00000U));
  }
  const uint32_t field = magnitude >> F::kMantissaBits;
  const uint32_t mantissa = magnitude & ((1U << F::kMantissaBits) - 1);
  if (field == 0) {
    // Subnormal: mantissa * 2^(1 - bias - mantissa bits), exact in float.
    constexpr uint32_t kUnit = static_cast<uint32_t>(127 + 1 - kBias - F::kMantissaBits) << 23;
    return BitsFloat(FloatBits(static_cast<float>(mantissa) * BitsFloat(kUnit)) | sign);
  }
  const uint32_t exponent = field + static_cast<uint32_t>(127 - kBias);
  return BitsFloat(sign | (exponent << 23) | (mantissa << (23 - F::kMantissaBits)));
}

HEARTH_HD inline uint16_t EncodeBf16(float value) {
  const uint32_t bits = FloatBits(value);
  // Half a unit less one, and the last bit that stays: a tie goes to the even code.
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  // With the quiet bit: a NaN whose upper bits are zero would become infinity.
  const uint32_t quiet = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}
// `random`: 16 bits, uniform, at the low end. Not centred: the expectation is the value itself, but
// above the largest finite one, where it may become infinity. Infinities and NaN as EncodeBf16.
HEARTH_HD inline uint16_t EncodeBf16Stochastic(float value, uint32_t random) {
  const uint32_t bits = FloatBits(value);
  const bool finite = (bits & 0x7F800000) != 0x7F800000;
  return finite ? static_cast<uint16_t>((bits + (random & 0xFFFF)) >> 16) : EncodeBf16(value);
}
HEARTH_HD inline float DecodeBf16(uint16_t code) {
  return BitsFloat(static_cast<uint32_t>(code) << 16);
}
// DecodeBf16(EncodeBf16(value)), branch-free so that loops over it vectorise.
HEARTH_HD inline float RoundBf16(float value) {
  return DecodeBf16(EncodeBf16(value));
}

HEARTH_HD inline uint16_t EncodeF16(float value) {
  return static_cast<uint16_t>(EncodeNarrow<F16Format>(value));
}
HEARTH_HD inline float DecodeF16(uint16_t code) {
  return DecodeNarrow<F16Format>(code);
}
HEARTH_HD inline uint8_t EncodeE4m3(float value) {
  return static_cast<uint8_t>(EncodeNarrow<E4m3Format>(value));
}
HEARTH_HD inline uint8_t EncodeE4m3Stochastic(float value, uint32_t random) {
  return static_cast<uint8_t>(EncodeNarrowStochastic<E4m3Format>(value, random));
}
HEARTH_HD inline float DecodeE4m3(uint8_t code) {
  return DecodeNarrow<E4m3Format>(code);
}
HEARTH_HD inline uint8_t EncodeE5m2(float value) {
  return static_cast<uint8_t>(EncodeNarrow<E5m2Format>(value));
}
HEARTH_HD inline uint8_t EncodeE5m2Stochastic(float value, uint32_t random) {
  return static_cast<uint8_t>(EncodeNarrowStochastic<E5m2Format>(value, random));
}
HEARTH_HD inline float DecodeE5m2(uint8_t code) {
  return DecodeNarrow<E5m2Format>(code);
}

inline constexpr float kE2m1Max = 6.0F;

// The 4 bits of a value. With the step 2^(e-1) of its binade, adding 2^(e+22) leaves
// round(|x| / step) in the low bits of the sum: one rounding, to even.
HEARTH_HD inline uint32_t EncodeE2m1(float value) {
  const uint32_t bits = FloatBits(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return 7;
  }
  const float absolute = BitsFloat(bits & 0x7FFFFFFFU);
  const float magnitude = absolute < kE2m1Max ? absolute : kE2m1Max;
  const float at_least_one = magnitude > 1.0F ? magnitude : 1.0F;
  const uint32_t binade = FloatBits(at_least_one) & 0x7F800000U;
  const uint32_t magic = binade + (22U << 23);
  const uint32_t steps = FloatBits(AddRn(magnitude, BitsFloat(magic))) - magic;
  return ((bits >> 28) & 8U) | (steps + (binade >> 22) - 254U);
}

// `random`: 16 bits, uniform. Up to 1 the steps are equal, so 1 + |x| has them in the same place
// as the normals: adding the random bits below it carries where it rounds up.
HEARTH_HD inline uint32_t EncodeE2m1Stochastic(float value, uint32_t random) {
  const uint32_t bits = FloatBits(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return 7;
  }
  const float absolute = BitsFloat(bits & 0x7FFFFFFFU);
  const float magnitude = absolute < kE2m1Max ? absolute : kE2m1Max;
  const bool normal = magnitude >= 1.0F;
  const uint32_t shifted = FloatBits(normal ? magnitude : AddRn(magnitude, 1.0F));
  const uint32_t code =
      ((shifted + ((random & 0xFFFFU) << 6) + 32U) >> 22) - (normal ? 252U : 254U);
  return ((bits >> 28) & 8U) | code;
}

// code < 16
HEARTH_HD inline float DecodeE2m1(uint32_t code) {
  const uint32_t magnitude = code & 7U;
  const uint32_t normal = (((magnitude >> 1) + 126U) << 23) | ((magnitude & 1U) << 22);
  const uint32_t subnormal = magnitude == 0 ? 0U : 0x3F000000U;
  return BitsFloat(((code & 8U) << 28) | (magnitude < 2 ? subnormal : normal));
}

// A byte of two: the first in the low nibble.
HEARTH_HD inline uint32_t EncodeE2m1Pair(float first, float second) {
#ifdef HEARTH_E2M1_INSTRUCTIONS
  uint16_t pair;
  asm("{ .reg .b8 byte;\n"
      "  cvt.rn.satfinite.e2m1x2.f32 byte, %2, %1;\n"
      "  mov.b16 %0, {byte, 0}; }"
      : "=h"(pair)
      : "f"(first), "f"(second));
  return pair;
#else
  return EncodeE2m1(first) | (EncodeE2m1(second) << 4);
#endif
}

// The least power of two that is not below `value`, >= 0, as 2^(code - 127): at most 2^127, from
// infinity too; 2^-127 for what is below it, zero too. The sign does not count; NaN is 0xFF.
HEARTH_HD inline uint8_t EncodeE8m0Up(float value) {
#ifdef HEARTH_E2M1_INSTRUCTIONS
  uint16_t pair;
  asm("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(fabsf(value)));
  return static_cast<uint8_t>(pair);
#else
  const uint32_t magnitude = FloatBits(value) & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return 0xFF;
  }
  const uint32_t exponent = magnitude >> 23;
  const uint32_t mantissa = magnitude & 0x7FFFFFU;
  const bool up = exponent == 0 ? mantissa > 0x400000U : mantissa > 0;
  const uint32_t code = exponent + (up ? 1 : 0);
  return static_cast<uint8_t>(code < 0xFEU ? code : 0xFEU);
#endif
}

HEARTH_HD inline float DecodeE8m0(uint8_t code) {
  if (code == 0xFF) {
    return BitsFloat(0x7FC00000U);
  }
  return BitsFloat(code == 0 ? 0x00400000U : uint32_t{code} << 23);
}

// 1 / DecodeE8m0(code), exact; NaN for NaN.
HEARTH_HD inline float InverseE8m0(uint8_t code) {
  if (code == 0xFF) {
    return BitsFloat(0x7FC00000U);
  }
  return BitsFloat(code == 254 ? 0x00400000U : (254U - code) << 23);
}

// `value` rounded to `format` and widened again; kF32 and kF64 return it unchanged.
// Formats: kF64, kF32, kBF16, kF16, kE4M3, kE5M2.
inline float RoundToFormat(float value, DType format) {
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

}  // namespace hearth::formats
