// Block scaling, one source for host and device (C++17, the same bits everywhere): from up to 128
// values of a row to codes and scales, in spans of 16. NVFP4: "Pretraining Large Language Models
// with NVFP4" (arXiv 2509.25149) appendix B; MXFP8: OCP Microscaling Formats 1.0; kFourOverSix:
// arXiv 2512.02010; kEden: arXiv 2601.22813. What the forms hold: core/block_quant.h.
//
// E2M1, with V the value and S the scale that the largest magnitude shall get (6 and 448; four over
// six: 256; unclipped: V = 96/17; EDEN: V = 6 / (17/16 * 0.93), S = 255.99):
//   encode  = min(S V / amax, FLT_MAX), 1 if amax is 0, infinite or NaN    decode = 1 / encode
//   b       = round_e4m3(amax of the block * (encode * (1/V)))             the stored scale
//   factor  = min(1 / (b * decode), FLT_MAX)
//   q       = round_e2m1(x * factor)                                       x ~ q * b * decode
// EDEN stores, instead of b (1 if that is 0), round_stochastic_e4m3(b * sum(y y) / sum(y q)) with
// y = x * factor and the sums over the Hadamard group, 1 for their quotient if sum(y q) is 0.
// MXFP8, and FP8 in blocks of 128:
//   b = round_up_e8m0(amax of the block * (1 / largest)), q = round(x / b)
#pragma once

#include "common/formats/hd.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

#ifdef __CUDA_ARCH__
#define HEARTH_UNROLL _Pragma("unroll")
#else
#define HEARTH_UNROLL
#endif

namespace hearth::kernels {

inline constexpr int kSpan = 16;
inline constexpr int kMaxHadamard = 128;
inline constexpr uint8_t kE4m3Nan = 0x7F;
inline constexpr uint8_t kE8m0Nan = 0xFF;
// Bit i: sign i is negative.
inline constexpr uint32_t kNvidiaSigns = 0xD7E8;

// What the largest magnitude of a block and of the tensor shall become.
struct BlockTargets {
  float value;          // V
  float value_inverse;  // 1 / V
  float product;        // S V
};
HEARTH_HD inline BlockTargets TargetsOf(Rounding rounding) {
  switch (rounding) {
    case Rounding::kFourOverSix:
      // 256 and not 448: the scale of the choice with 4 is 1.5 times as large and must fit as well.
      return {6.0F, 1.0F / 6.0F, 256.0F * 6.0F};
    case Rounding::kStochasticUnclipped:
      // Rounding to E4M3, with 3 bits behind the leading one, can make a scale smaller by up to a
      // 17th: 6 / (17/16) stays within 6 all the same, so nothing is clipped.
      return {96.0F / 17.0F, 17.0F / 96.0F, 448.0F * (96.0F / 17.0F)};
    case Rounding::kEden:
      return {6.0F / 0.988125F, 0.988125F / 6.0F, 255.99F * (6.0F / 0.988125F)};
    default:
      return {6.0F, 1.0F / 6.0F, 448.0F * 6.0F};
  }
}

// The pair of a tensor's amax.
struct TensorScale {
  float encode = 1.0F;
  float decode = 1.0F;
};
HEARTH_HD inline TensorScale TensorScaleOf(float amax, Rounding rounding) {
  TensorScale scale;
  if (amax > 0.0F && amax <= FLT_MAX) {
    const float encode = DivRn(TargetsOf(rounding).product, amax);
    scale.encode = encode <= FLT_MAX ? encode : FLT_MAX;
    scale.decode = DivRn(1.0F, scale.encode);
  }
  return scale;
}

// The amax that the next quantisation is made for: a magnitude of no use leaves the one there was.
HEARTH_HD inline float NextBlockAmax(float measured, float amax, float margin) {
  const float next = MulRn(measured, margin);
  return next > 0.0F && next <= FLT_MAX ? next : amax;
}

// Magnitudes as unsigned integers order as the values do, with infinity and NaN above.
HEARTH_HD inline uint32_t LargestMagnitude(const float (&v)[kSpan]) {
  uint32_t largest = 0;
  HEARTH_UNROLL
  for (int i = 0; i < kSpan; ++i) {
    const uint32_t bits = FloatBits(v[i]) & 0x7FFFFFFFU;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}
// What is recorded of a magnitude: every NaN is one.
HEARTH_HD inline uint32_t RecordedMagnitude(uint32_t bits) {
  return bits > 0x7F800000U ? 0x7FC00000U : bits;
}
HEARTH_HD inline bool FiniteMagnitude(uint32_t bits) {
  return bits < 0x7F800000U;
}

// The 128 signs of a group; Of() gives those of the span at `at`, a multiple of 16.
struct SignWords {
  uint32_t words[4];
  HEARTH_HD uint32_t Of(int at) const { return (words[at / 32 % 4] >> (at % 32)) & 0xFFFFU; }
};
HEARTH_HD inline SignWords SignsOf(HadamardSigns signs,
                                   uint64_t seed,
                                   uint32_t step,
                                   uint32_t rotation) {
  constexpr uint32_t kFixed = kNvidiaSigns | (kNvidiaSigns << 16);
  if (signs == HadamardSigns::kFixed) {
    return {{kFixed, kFixed, kFixed, kFixed}};
  }
  const RngKey key = {seed, RngPurpose::kHadamardSigns, step, 0, rotation};
  const auto words = RngBlock(key, 0);
  return {{words[0], words[1], words[2], words[3]}};
}

// 1 / sqrt(group)
HEARTH_HD inline float HadamardNorm(int group) {
  return group == 16   ? 0.25F
         : group == 32 ? 0.176776695296636881F
         : group == 64 ? 0.125F
                       : 0.0883883476483184406F;
}

// Signs and the four stages of a transform that stay within a span. Further stages add and subtract
// element i of two spans (HadamardStage); at the end everything is multiplied by HadamardNorm.
HEARTH_HD inline void HadamardSpan(float (&v)[kSpan], uint32_t signs) {
  HEARTH_UNROLL
  for (int i = 0; i < kSpan; ++i) {
    // Bit i of the signs is moved to the sign bit of element i.
    v[i] = BitsFloat(FloatBits(v[i]) ^ ((signs << (31 - i)) & 0x80000000U));
  }
  HEARTH_UNROLL
  for (int half = 1; half < kSpan; half *= 2) {
    HEARTH_UNROLL
    for (int i = 0; i < kSpan; ++i) {
      if ((i & half) == 0) {
        const float low = v[i];
        const float high = v[i + half];
        v[i] = AddRn(low, high);
        v[i + half] = SubRn(low, high);
      }
    }
  }
}
// The element of one of a pair of spans from both: the upper one of the pair gets the difference.
HEARTH_HD inline float HadamardStage(float own, float other, bool upper) {
  return upper ? SubRn(other, own) : AddRn(own, other);
}

// The stored scale of a block of E2M1, `largest` being its magnitude: kE4m3Nan if not finite.
HEARTH_HD inline uint8_t E2m1BlockScale(uint32_t largest, float encode, float value_inverse) {
  return FiniteMagnitude(largest)
             ? EncodeE4m3(MulRn(BitsFloat(largest), MulRn(encode, value_inverse)))
             : kE4m3Nan;
}
// The factor of its values; FLT_MAX for a scale of 0 or NaN.
HEARTH_HD inline float E2m1Factor(float block_scale, float decode) {
  const float factor = DivRn(1.0F, MulRn(block_scale, decode));
  return factor < FLT_MAX ? factor : FLT_MAX;
}

// Sixteen codes in the order of memory.
struct E2m1Codes {
  uint32_t words[2] = {0, 0};
};
HEARTH_HD inline E2m1Codes EncodeE2m1Span(const float (&v)[kSpan], float factor) {
  E2m1Codes codes;
  HEARTH_UNROLL
  for (int i = 0; i < kSpan; i += 2) {
    codes.words[i / 8] |= EncodeE2m1Pair(MulRn(v[i], factor), MulRn(v[i + 1], factor))
                          << (i % 8 * 4);
  }
  return codes;
}

// The 16 random bits of element `i` of the eight of a Philox block.
HEARTH_HD inline uint32_t HalfWord(uint32_t word, int i) {
  return i % 2 == 0 ? word & 0xFFFFU : word >> 16;
}

// `element`: number of the first, a multiple of 8.
HEARTH_HD inline E2m1Codes EncodeE2m1SpanStochastic(const float (&v)[kSpan],
                                                    float factor,
                                                    const RngKey& key,
                                                    uint64_t element) {
  E2m1Codes codes;
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const auto random = RngBlock(key, element / 8 + static_cast<uint64_t>(half));
    HEARTH_UNROLL
    for (int i = 0; i < 8; ++i) {
      const float scaled = MulRn(v[half * 8 + i], factor);
      codes.words[half] |=
          EncodeE2m1Stochastic(scaled, HalfWord(random[static_cast<size_t>(i / 2)], i)) << (i * 4);
    }
  }
  return codes;
}

HEARTH_HD inline float DecodeE2m1(const E2m1Codes& codes, int i) {
  return DecodeE2m1((codes.words[i / 8] >> (i % 8 * 4)) & 15U);
}

// Square error of a choice, in units of the tensor's scale; the order of the sum is fixed.
HEARTH_HD inline float SquareError(const float (&v)[kSpan],
                                   float encode,
                                   const E2m1Codes& codes,
                                   float block_scale) {
  float sum = 0.0F;
  HEARTH_UNROLL
  for (int i = 0; i < kSpan; ++i) {
    const float off = SubRn(MulRn(v[i], encode), MulRn(DecodeE2m1(codes, i), block_scale));
    sum = AddRn(sum, MulRn(off, off));
  }
  return sum;
}

// One block of E2M1 with all that is decided within it.
struct E2m1Block {
  E2m1Codes codes;
  uint8_t scale = 0;
  float factor = 0.0F;  // that the values were multiplied by
};

// Largest to 6 or to 4.
HEARTH_HD inline E2m1Block FourOverSix(const float (&v)[kSpan],
                                       uint32_t largest,
                                       const TensorScale& tensor) {
  E2m1Block best;
  if (!FiniteMagnitude(largest)) {
    best.scale = kE4m3Nan;
    return best;
  }
  const float target = MulRn(BitsFloat(largest), MulRn(tensor.encode, 1.0F / 6.0F));
  float least = 0.0F;
  HEARTH_UNROLL
  for (int four = 0; four < 2; ++four) {
    E2m1Block block;
    // The largest becomes 6, or 4 with a scale that is 6/4 as large: the values 3 and 4 of E2M1 are
    // closer to each other than 4 and 6. A tie takes 6.
    block.scale = EncodeE4m3(four == 0 ? target : MulRn(target, 1.5F));
    const float scale = DecodeE4m3(block.scale);
    block.factor = E2m1Factor(scale, tensor.decode);
    block.codes = EncodeE2m1Span(v, block.factor);
    const float error = SquareError(v, tensor.encode, block.codes, scale);
    if (four == 0 || error < least) {
      best = block;
      least = error;
    }
  }
  return best;
}

// Nearest or stochastic, of a block whose magnitude is `largest` (a 16 x 16 tile's, if square).
HEARTH_HD inline E2m1Block QuantizeE2m1(const float (&v)[kSpan],
                                        uint32_t largest,
                                        Rounding rounding,
                                        const TensorScale& tensor,
                                        const RngKey& key,
                                        uint64_t element) {
  if (rounding == Rounding::kFourOverSix) {
    return FourOverSix(v, largest, tensor);
  }
  E2m1Block block;
  block.scale = E2m1BlockScale(largest, tensor.encode, TargetsOf(rounding).value_inverse);
  if (block.scale == kE4m3Nan) {
    return block;
  }
  block.factor = E2m1Factor(DecodeE4m3(block.scale), tensor.decode);
  block.codes = rounding == Rounding::kNearest
                    ? EncodeE2m1Span(v, block.factor)
                    : EncodeE2m1SpanStochastic(v, block.factor, key, element);
  return block;
}

// EDEN, first part: a block of a group, its base scale not yet stored, and its part of the sums.
struct EdenBlock {
  E2m1Codes codes;
  float base = 1.0F;  // b
  float factor = 0.0F;
  float squares = 0.0F;     // sum(y y)
  float projection = 0.0F;  // sum(y q)
};
HEARTH_HD inline EdenBlock QuantizeEden(const float (&v)[kSpan],
                                        uint32_t largest,
                                        const TensorScale& tensor) {
  EdenBlock block;
  const uint8_t code =
      E2m1BlockScale(largest, tensor.encode, TargetsOf(Rounding::kEden).value_inverse);
  if (code == kE4m3Nan) {
    block.base = BitsFloat(0x7FC00000U);
    return block;
  }
  // A block of almost nothing has codes of zero: any scale will do that does not divide by 0.
  block.base = code == 0 ? 1.0F : DecodeE4m3(code);
  block.factor = E2m1Factor(block.base, tensor.decode);
  block.codes = EncodeE2m1Span(v, block.factor);
  HEARTH_UNROLL
  for (int i = 0; i < kSpan; ++i) {
    const float y = MulRn(v[i], block.factor);
    block.squares = AddRn(block.squares, MulRn(y, y));
    block.projection = AddRn(block.projection, MulRn(y, DecodeE2m1(block.codes, i)));
  }
  return block;
}
// Second part, with the sums of the group, added in a tree over its blocks: ((0+1)+(2+3))+...
HEARTH_HD inline uint8_t EdenScale(float base, float squares, float projection, uint32_t random) {
  const float correction = projection == 0.0F ? 1.0F : DivRn(squares, projection);
  return EncodeE4m3Stochastic(MulRn(base, correction), random);
}

// MXFP8: the stored scale; kE8m0Nan if not finite.
HEARTH_HD inline uint8_t MxBlockScale(uint32_t largest, float max_finite_inverse) {
  return FiniteMagnitude(largest) ? EncodeE8m0Up(MulRn(BitsFloat(largest), max_finite_inverse))
                                  : kE8m0Nan;
}

// Stored scales of blocks, by their format: all that a kernel knows of it.
//   Stored     : as it lies in memory       Decode : what the block's values are multiplied by
// and where a scale follows from its block alone:
//   Make       : of the largest magnitude; a NaN if that is not finite
//   Inverse    : the factor of the values, if IsFinite
template <DType kFormat>
struct BlockScale;
template <>
struct BlockScale<DType::kE4M3> {
  using Stored = uint8_t;
  HEARTH_HD static float Decode(Stored scale) { return DecodeE4m3(scale); }
};
template <>
struct BlockScale<DType::kE8M0> {
  using Stored = uint8_t;
  HEARTH_HD static Stored Make(uint32_t largest, float max_finite_inverse) {
    return MxBlockScale(largest, max_finite_inverse);
  }
  HEARTH_HD static bool IsFinite(Stored scale) { return scale != kE8m0Nan; }
  HEARTH_HD static float Inverse(Stored scale) { return InverseE8m0(scale); }
  HEARTH_HD static float Decode(Stored scale) { return DecodeE8m0(scale); }
};
// Powers of two as E8M0's, so that values times scales are exact in bf16.
template <>
struct BlockScale<DType::kF32> {
  using Stored = float;
  HEARTH_HD static Stored Make(uint32_t largest, float max_finite_inverse) {
    return DecodeE8m0(MxBlockScale(largest, max_finite_inverse));
  }
  HEARTH_HD static bool IsFinite(Stored scale) { return scale == scale; }
  HEARTH_HD static float Inverse(Stored scale) { return DivRn(1.0F, scale); }
  HEARTH_HD static float Decode(Stored scale) { return scale; }
};
template <BlockLayout kLayout>
using ScaleOf = BlockScale<RowOf(kLayout).scale_dtype>;

// 1 / the largest value of an FP8 format.
HEARTH_HD inline float MaxFiniteInverse(bool e4m3) {
  return e4m3 ? 1.0F / 448.0F : 1.0F / 57344.0F;
}

// Sixteen FP8 codes in the order of memory.
struct Fp8Codes {
  uint32_t words[4] = {0, 0, 0, 0};
};
HEARTH_HD inline Fp8Codes EncodeFp8Span(const float (&v)[kSpan], float factor, bool e4m3) {
  Fp8Codes codes;
  HEARTH_UNROLL
  for (int i = 0; i < kSpan; ++i) {
    const float scaled = MulRn(v[i], factor);
    codes.words[i / 4] |= uint32_t{e4m3 ? EncodeE4m3(scaled) : EncodeE5m2(scaled)} << (i % 4 * 8);
  }
  return codes;
}
HEARTH_HD inline Fp8Codes EncodeFp8SpanStochastic(
    const float (&v)[kSpan], float factor, bool e4m3, const RngKey& key, uint64_t element) {
  Fp8Codes codes;
  HEARTH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const auto words = RngBlock(key, element / 8 + static_cast<uint64_t>(half));
    HEARTH_UNROLL
    for (int k = 0; k < 8; ++k) {
      const int i = half * 8 + k;
      const float scaled = MulRn(v[i], factor);
      const uint32_t random = HalfWord(words[static_cast<size_t>(k / 2)], k);
      codes.words[i / 4] |= uint32_t{e4m3 ? EncodeE4m3Stochastic(scaled, random)
                                          : EncodeE5m2Stochastic(scaled, random)}
                            << (i % 4 * 8);
    }
  }
  return codes;
}

// Elements beyond the largest value before rounding, and those that are lost: not zero, decoded as
// zero. Blocks that are not finite count for nothing.
struct SpanCounts {
  uint32_t saturated = 0;
  uint32_t underflowed = 0;
};
// `codes`: kBits of each element from the lowest on. `lost`: the block's scale is zero.
template <int kBits>
HEARTH_HD inline SpanCounts CountSpan(
    const float (&v)[kSpan], const uint32_t* codes, float factor, float max_finite, bool lost) {
  constexpr int kPerWord = 32 / kBits;
  constexpr uint32_t kMagnitude = (1U << (kBits - 1)) - 1;
  SpanCounts counts;
  HEARTH_UNROLL
  for (int i = 0; i < kSpan; ++i) {
    const uint32_t scaled = FloatBits(MulRn(v[i], factor)) & 0x7FFFFFFFU;
    const uint32_t code = (codes[i / kPerWord] >> (i % kPerWord * kBits)) & kMagnitude;
    counts.saturated += !lost && scaled > FloatBits(max_finite) ? 1 : 0;
    counts.underflowed += (lost || code == 0) && (FloatBits(v[i]) & 0x7FFFFFFFU) != 0 ? 1 : 0;
  }
  return counts;
}

#undef HEARTH_UNROLL

}  // namespace hearth::kernels
