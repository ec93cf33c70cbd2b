// How values are put into narrow formats: what a scale covers, and how values and scales are
// rounded. C++17, for CUDA files too.
#pragma once

#include <cstdint>

namespace hearth::formats {

enum class Scaling : uint8_t {
  kNone,  // the format needs no scale
  // One scale a tensor, from the largest of the absolute maxima of the last steps.
  kTensorDelayed,
  kTensorCurrent,  // one scale a tensor, from this tensor's own absolute maximum
  // One scale a block, as common/formats/block_layout.h says.
  kBlock,
};

// How values, and the scales of their blocks, are rounded. All but kNearest and kStochastic exist
// only for blocks of E2M1.
enum class Rounding : uint8_t {
  // Rounds to nearest, ties to even.
  kNearest = 0,
  // Each value goes to one of its two neighbours, by chance (common/formats/codecs.h). The scale of
  // a block is rounded to nearest, so the block's largest values may lie beyond 6 and saturate: the
  // mean is 0.3 % (normal data) to 0.7 % (heavy tails) low.
  kStochastic = 1,
  // As kStochastic with scales 17/16 larger, so that nothing saturates: no bias, and about 25 %
  // more error.
  kStochasticUnclipped = 2,
  // To nearest even. Each block's largest value goes to 6 or to 4, whichever gives the lower square
  // error (arXiv 2512.02010).
  kFourOverSix = 3,
  // MS-EDEN of Quartet II (arXiv 2601.22813). Values go to nearest even; one factor per Hadamard
  // group then makes the group's projection exact, and the block scales take it up by stochastic
  // rounding. Unbiased over the signs and the rounding up to its own clipping, which is under
  // 0.1 %. Needs a Hadamard transform.
  kEden = 4,
};

// The signs of a randomised Hadamard transform.
enum class HadamardSigns : uint8_t {
  // NVIDIA's sixteen, repeated: 1 1 1 -1 1 -1 -1 -1 -1 -1 -1 1 -1 1 -1 -1.
  kFixed = 0,
  // 128 drawn from (seed, step, rotation). Every tensor and micro-batch of a step that names the
  // same rotation gets the same signs, so that they cancel in a product.
  kSeeded = 1,
};

}  // namespace hearth::formats
