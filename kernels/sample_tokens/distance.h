// The arithmetic of SampleTokens (sample_tokens.h) that host and device share, with fixed bits: a
// host file that calls it is compiled with -ffp-contract=off.
//
// A token's distance d >= 0 says how much less likely than the likeliest it is: its probability is
// e^-d times the largest. All filters are limits of d.
#pragma once

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

// `largest` of the penalised logits, not -infinity; temperature > 0.
HEARTH_HD inline float DistanceOf(float penalised, float largest, float temperature) {
  if (penalised == largest) {
    return 0.0F;  // of infinities too
  }
  const float difference = SubRn(largest, penalised);
  return temperature == 1.0F ? difference : DivRn(difference, temperature);
}

// 2^29 e^-d, rounded down; Cephes' polynomial as in core/cpu.h.
HEARTH_HD inline uint32_t WeightOf(float d) {
  // 2^29 e^-20.5 is below 1, so from there on the weight is 0; that of NaN too. No branch: a GPU
  // computes this for every token of a vocabulary.
  const float capped = d < 20.5F ? d : 20.5F;
  const float shifted = AddRn(MulRn(-capped, 1.44269504088896341F), 12582912.0F);  // 1.5 * 2^23
  // The addition has rounded to an integer, which lies in the low bits of `shifted`.
  const float n = SubRn(shifted, 12582912.0F);
  // ln 2 in two parts. The first has few bits, so its product with n is exact.
  float r = SubRn(-capped, MulRn(n, 0.693359375F));
  r = AddRn(r, MulRn(n, 2.12194440e-4F));
  float p = 1.9875691500e-4F;
  p = AddRn(MulRn(p, r), 1.3981999507e-3F);
  p = AddRn(MulRn(p, r), 8.3334519073e-3F);
  p = AddRn(MulRn(p, r), 4.1665795894e-2F);
  p = AddRn(MulRn(p, r), 1.6666665459e-1F);
  p = AddRn(MulRn(p, r), 5.0000001201e-1F);
  p = AddRn(AddRn(MulRn(MulRn(p, r), r), r), 1.0F);
  const auto exponent = static_cast<int32_t>(FloatBits(shifted)) - 0x4B400000;
  const float weight = MulRn(p, BitsFloat(static_cast<uint32_t>(exponent + 29 + 127) << 23));
  return static_cast<uint32_t>(weight);
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

// A number in [0, whole) that decides the draw for `position` of a text.
HEARTH_HD inline uint64_t DrawnMass(uint64_t seed,
                                    int32_t stream,
                                    int32_t position,
                                    uint64_t whole) {
  RngKey key;
  key.seed = seed;
  key.purpose = RngPurpose::kSampling;
  key.micro_batch = static_cast<uint32_t>(stream);
  // whole * word / 2^32, rounded down, without a product of more than 64 bits.
  const uint64_t word = RngWord(key, static_cast<uint64_t>(position));
  return (whole >> 32) * word + (((whole & 0xFFFFFFFFU) * word) >> 32);
}

}  // namespace hearth::kernels
