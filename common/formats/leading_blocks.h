// Muon's momentum in 4 bits (StateCodec::kLeadingSigned4). A matrix M is kept as P R^T plus the
// rest; P and R have its leading directions, in bf16, and the rest is in blocks of 16 elements of a
// row:
//
//   value = code * scale * unit / 8,  code in [-8, 7], scale in e4m3, unit one fp32 of the matrix
//
// A block takes the scale with the least square error of the four that kLeadingShares gives. The
// first has the element of the largest magnitude at code -8, so scales have a sign.
// Encoding gives the same bits on every device; a NaN makes the whole matrix NaN. Memory of zero
// bytes decodes to zeros, and zeros become zero bytes. C++17.
// Codes are two's complement, two a byte, the even element in the low half.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/formats/codecs.h"
#include "common/formats/hd.h"
#include "common/formats/state_blocks.h"

namespace hearth::formats {

inline constexpr int kLeadingBlock = RowOf(StateCodec::kLeadingSigned4).block;
inline constexpr int kLeadingRank = RowOf(StateCodec::kLeadingSigned4).rank;
static_assert(kLeadingBlock == 16, "LeadingBlock");

// A block as it is stored.
struct LeadingBlock {
  uint64_t codes = 0;  // element i in bits 4 i to 4 i + 3
  uint8_t scale = 0;   // e4m3
};

// The matrix's number, where the rest is at most `largest`. NaN stays NaN.
HEARTH_HD inline float LeadingUnit(float largest) {
  const float unit = DivRn(largest, 448.0F);
  return unit < kLeastStateScale ? kLeastStateScale : unit;
}

// What code 1 of a block stands for.
HEARTH_HD inline float LeadingStep(uint8_t scale, float unit) {
  return MulRn(MulRn(DecodeE4m3(scale), unit), 0.125F);
}

// The code of element `i`, below 16, of 16 in `codes`.
HEARTH_HD inline float LeadingCode(uint64_t codes, int i) {
  const auto code = static_cast<int32_t>(codes >> (4 * i) & 15U);
  return static_cast<float>(code - ((code & 8) << 1));
}

// The square error of a block with a scale; adds its codes to `block`.
HEARTH_HD inline float TryLeadingScale(const float (&x)[kLeadingBlock],
                                       float unit,
                                       LeadingBlock& block) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer
  const float step = LeadingStep(block.scale, unit);
  // Below it 1 / step would be infinite.
  const float inverse = fabsf(step) < kLeastStateScale ? 0.0F : DivRn(1.0F, step);
  float error = 0.0F;
  for (int i = 0; i < kLeadingBlock; ++i) {
    const float place = fminf(fmaxf(MulRn(x[i], inverse), -8.0F), 7.0F);
    const float code = SubRn(AddRn(place, kMagic), kMagic);
    block.codes |= static_cast<uint64_t>(static_cast<int32_t>(code) & 15) << (4 * i);
    const float off = SubRn(x[i], MulRn(code, step));
    error = AddRn(error, MulRn(off, off));
  }
  return error;
}

// `unit` as LeadingUnit gives it.
HEARTH_HD inline LeadingBlock EncodeLeadingBlock(const float (&x)[kLeadingBlock], float unit) {
  // 8 over the code of the largest element that a scale is made for.
  constexpr float kLeadingShares[] = {1.0F, 8.0F / 7.4F, 8.0F / 8.6F, 8.0F / 9.4F};
  float largest = x[0];
  for (int i = 1; i < kLeadingBlock; ++i) {
    const bool larger = (FloatBits(x[i]) & 0x7FFFFFFFU) > (FloatBits(largest) & 0x7FFFFFFFU);
    largest = larger ? x[i] : largest;
  }
  const float ratio = DivRn(-largest, unit);
  LeadingBlock best;
  float least = 0.0F;
  for (int k = 0; k < 4; ++k) {
    LeadingBlock block;
    block.scale = EncodeE4m3(MulRn(ratio, kLeadingShares[k]));
    const float error = TryLeadingScale(x, unit, block);
    if (k == 0 || error < least) {
      best = block;
      least = error;
    }
  }
  // A scale of -0 is one of 0.
  best.scale = (best.scale & 0x7F) == 0 ? uint8_t{0} : best.scale;
  return best;
}

}  // namespace hearth::formats
