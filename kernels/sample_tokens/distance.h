// The arithmetic of SampleTokens (sample_tokens.h) that host and device share, with fixed bits: a
// host file that calls it is compiled with -ffp-contract=off.
//
// A token's distance d >= 0 is how far its penalised logit lies below the largest: its probability
// is e^(-d / temperature) times the largest. top_k and top_p are limits of d.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {

// Weight of the likeliest token. Its multiples fit 32 bits and the sum of 2^20 of them 64.
constexpr float kLargestWeight = 536870912.0F;  // 2^29

// NaN becomes -infinity.
HEARTH_HD inline float PenalisedLogit(float logit, bool seen, float penalty) {
  if (logit != logit) {
    return BitsFloat(0xFF800000U);
  }
  if (!seen || penalty == 1.0F) {
    return logit;
  }
  // On either side of 0 towards less likely (CTRL, arXiv 1909.05858).
  return logit > 0.0F ? DivRn(logit, penalty) : MulRn(logit, penalty);
}

// `largest` of the penalised logits, finite. NaN only of a NaN, which weighs nothing.
HEARTH_HD inline float DistanceOf(float penalised, float largest) {
  return SubRn(largest, penalised);
}

// What a temperature makes of distances. In halvings of the weight, d / temperature is d times high
// and low together, which are exact to about 2^-48.
struct WeightScale {
  float high = 0.0F;
  float low = 0.0F;
  float far = 0.0F;  // distance from which weights are 0, by a wide margin; d * high is about 120
};

// temperature 0, for which nothing is weighed, as 1.
inline WeightScale WeightScaleOf(double temperature) {
  constexpr double kLog2e = 1.4426950408889634;
  const double scale = temperature > 0.0 ? kLog2e / temperature : kLog2e;
  WeightScale parts;
  parts.high = static_cast<float>(scale);
  parts.low = static_cast<float>(scale - static_cast<double>(parts.high));
  parts.far = static_cast<float>(120.0 / scale);
  return parts;
}

// a * b + c, rounded once.
HEARTH_HD inline float FmaRn(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// Smaller of two; b if a is NaN.
HEARTH_HD inline float SmallerOf(float a, float b) {
#ifdef __CUDA_ARCH__
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}

// 2^29 e^(-d / temperature), not rounded to an integer; about 2^-91 where it is less, or d is NaN.
// 14 instructions of a GPU, which computes this for every token of a vocabulary.
HEARTH_HD inline float WeightBeforeRounding(float d, const WeightScale& scale) {
  // An integer near 1.5 * 2^23 is as it is in the low bits of a float. 29 less: the result is in
  // units of 2^-29.
  constexpr float kShift = 12582912.0F - 29.0F;
  const float capped = SmallerOf(d, scale.far);
  const float shifted = FmaRn(capped, scale.high, kShift);
  const float halvings = SubRn(shifted, kShift);
  // What is left of the exponent, in [-1/2, 1/2].
  float r = FmaRn(-capped, scale.high, halvings);
  r = FmaRn(-capped, scale.low, r);
  // 2^r to 2e-9, exact at 0: least largest relative error among polynomials of degree 6.
  float p = 1.5353362e-4F;
  p = FmaRn(p, r, 1.3398875e-3F);
  p = FmaRn(p, r, 9.61843692e-3F);
  p = FmaRn(p, r, 5.55033237e-2F);
  p = FmaRn(p, r, 2.40226477e-1F);
  p = FmaRn(p, r, 6.93147182e-1F);
  p = FmaRn(p, r, 1.0F);
  // The high bits of kShift leave the word.
  return BitsFloat(FloatBits(p) - (FloatBits(shifted) << 23));
}

// 2^29 e^(-d / temperature), rounded down.
HEARTH_HD inline uint32_t WeightOf(float d, const WeightScale& scale) {
  return static_cast<uint32_t>(WeightBeforeRounding(d, scale));
}

// Mass that the likeliest tokens must have for the others to be dropped, of `whole`; >= 1.
HEARTH_HD inline uint64_t TopMass(double top_p, uint64_t whole) {
  const auto mass = static_cast<uint64_t>(top_p * static_cast<double>(whole));
  return mass == 0 ? 1 : mass;
}

// Least weight that min_p leaves.
HEARTH_HD inline uint32_t LeastWeight(double min_p) {
  return static_cast<uint32_t>(min_p * static_cast<double>(kLargestWeight));
}

// The random word that decides the draw for `position` of a text.
HEARTH_HD inline uint32_t DrawnWord(uint64_t seed, int32_t stream, int32_t position) {
  RngKey key;
  key.seed = seed;
  key.purpose = RngPurpose::kSampling;
  key.micro_batch = static_cast<uint32_t>(stream);
  return RngWord(key, static_cast<uint64_t>(position));
}

// whole * word / 2^32, rounded down, without a product of more than 64 bits: in [0, whole).
HEARTH_HD inline uint64_t DrawnMass(uint32_t word, uint64_t whole) {
  return (whole >> 32) * word + (((whole & 0xFFFFFFFFU) * word) >> 32);
}

}  // namespace hearth::kernels
