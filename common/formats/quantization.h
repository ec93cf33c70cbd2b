// How values are put into narrow formats: what a scale covers, how values and scales are rounded,
// and where the scales of blocks lie in memory. C++17, for CUDA files too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/formats/dtype.h"

namespace hearth::formats {

enum class Scaling : uint8_t {
  kNone,  // the format needs no scale
  // One scale a tensor, from the largest of the absolute maxima of the last steps.
  kTensorDelayed,
  kTensorCurrent,  // one scale a tensor, from this tensor's own absolute maximum
  // One scale a block, and a tensor scale where the block scale's range asks for it.
  kBlock,
};

// How values, and the scales of their blocks, are rounded. All but kNearest and kStochastic exist
// for E2M1 alone, in blocks of 1 x 16.
enum class Rounding : uint8_t {
  // To nearest even.
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

// Elements that share a scale along the axis of the blocks: NVFP4's 16, MXFP8's 32.
constexpr int BlockLength(DType dtype) {
  return dtype == DType::kE2M1 ? 16 : 32;
}

// cuBLASLt's order of block scales (also CUTLASS's on SM100 and SM120): tiles of 512 bytes, 128
// rows by 4 blocks, one row of tiles after the other. cuBLAS 13 documentation, "1D block scaling
// factors layout"; CUTLASS media/docs/cpp/blackwell_functionality.md.
constexpr int64_t SwizzledScaleOffset(int64_t row, int64_t block, int64_t blocks) {
  const int64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

// Bytes of the scales of `rows` rows of `blocks` blocks: padded to 128 x 4.
constexpr int64_t SwizzledScaleBytes(int64_t rows, int64_t blocks) {
  return (rows + 127) / 128 * ((blocks + 3) / 4) * 512;
}

// Bytes of the scales of `lines` lines of `extent` elements in blocks of BlockLength(dtype).
constexpr int64_t BlockScaleBytes(DType dtype, int64_t lines, int64_t extent) {
  return SwizzledScaleBytes(lines, (extent + BlockLength(dtype) - 1) / BlockLength(dtype));
}

}  // namespace hearth::formats
