// Block-scaled outputs of an op: what they hold and how they are made. The arithmetic is in
// formats/block_scale.h, the same bits on every device.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {

struct StepInputs;  // step_gate/step_gate.h

// How the values of a form and the scales of its blocks are chosen. All but kNearest and
// kStochastic: E2M1 only, in blocks of 1 x 16.
//   kNearest            : to nearest even
//   kStochastic         : values by chance to a neighbour (formats/narrow.h). As the block's scale
//                         is rounded to nearest, its largest values may lie beyond 6 and saturate:
//                         the mean is 0.3 % (normal data) to 0.7 % (heavy tails) low
//   kStochasticUnclipped: the scales are 17/16 larger, so nothing saturates: no bias, but about 25
//   %
//                         more error
//   kFourOverSix        : to nearest even; each block's largest value goes to 6 or to 4, whichever
//                         gives the lower square error (arXiv 2512.02010)
//   kEden               : MS-EDEN of Quartet II (arXiv 2601.22813): values to nearest even, then
//   one
//                         factor per Hadamard group that makes the group's projection exact, which
//                         the block scales take up by stochastic rounding. Unbiased over the signs
//                         and the rounding up to its own clipping, under 0.1 %. Needs `hadamard`
enum class BlockRounding : uint8_t {
  kNearest = 0,
  kStochastic = 1,
  kStochasticUnclipped = 2,
  kFourOverSix = 3,
  kEden = 4,
};

// The signs of a randomised Hadamard transform.
//   kFixed : NVIDIA's sixteen, 1 1 1 -1 1 -1 -1 -1 -1 -1 -1 1 -1 1 -1 -1, repeated
//   kSeeded: 128 drawn from (seed, step, rotation): the same for every tensor and micro-batch of a
//            step that names the same rotation, so that they cancel in a product
enum class HadamardSigns : uint8_t { kFixed = 0, kSeeded = 1 };

// One direction of a tensor: [L, K], quantised in blocks along K, the axis a product sums over.
//   values  : packed, row-major. E2M1: K / 2 bytes a row, the even element in the low nibble; E4M3,
//             E5M2: K bytes a row. Absent: only `measured` is wanted. 16-byte aligned
//   scales  : SwizzledScaleBytes(L, K / block) bytes in cuBLASLt's order; every byte is written,
//             padding as 0. 16-byte aligned
//   amax    : in: the largest magnitude that the scale of the tensor is made for, one device float
//             (E2M1 only; 0, infinity or NaN count as "unknown": scale 1). It need not be this
//             tensor's: with that of an earlier step one pass is enough, and a power of two more is
//             cheap, because the blocks' E4M3 scales keep their relative precision (a factor of
//             2^10 costs nothing that is above 2^-4 of the largest block). If it is too small, the
//             scale of a block beyond it stays at its largest and the block's values saturate; if
//             it is far too large, small blocks underflow to zero
//   tensor_scale: out: one float, the factor that belongs to the products' alpha (E2M1 only):
//             element = value * block scale * tensor_scale
//   measured: optional, raised to the largest magnitude after the transform; NaN if any is. Not the
//             same float as `amax`
//   counts  : optional, two, raised by the number of elements that saturated (lay beyond the
//             largest value before rounding) and of those, not zero before, that became zero
//   hadamard: 0 none; 16, 32, 64, 128: groups of so many along K are multiplied by the orthonormal
//             Hadamard matrix after the signs. K is a multiple of it
// A block (with a transform: a group) that holds a NaN or an infinity gets the scale NaN and zero
// values: what is multiplied with it becomes NaN, and nothing is lost silently.
struct BlockForm {
  void* values = nullptr;
  uint8_t* scales = nullptr;
  const float* amax = nullptr;
  float* tensor_scale = nullptr;
  float* measured = nullptr;
  uint64_t* counts = nullptr;
  BlockRounding rounding = BlockRounding::kNearest;
  HadamardSigns signs = HadamardSigns::kFixed;
  int16_t hadamard = 0;

  constexpr bool has_values() const { return values != nullptr; }
  constexpr bool wanted() const { return values != nullptr || measured != nullptr; }
};

// Both forms of v [R, C]: rows [R, C] in blocks along C, columns [C, R], the transpose, in blocks
// along R.
//   dtype   : kE2M1: NVFP4, blocks of 16, E4M3 scales, a tensor scale;
//             kE4M3 or kE5M2: MXFP8, blocks of 32, E8M0 scales (rounded up: nothing saturates)
//   square  : E2M1: one scale for each 16 x 16 tile (weights): rows and columns hold the same
//   values.
//             kNearest or kStochastic*, no transform
//   amax    : optional, raised to the largest |v|, before any transform
//   key     : of the random numbers (purpose is ignored; tensor unique within the model): element e
//             of the rows form, R C + e of the columns form
//   position: optional, one beside the tensors: its step and micro_batch stand for the key's
//   rotation: which signs (kSeeded)
struct BlockQuantView {
  DType dtype = DType::kE2M1;
  bool square = false;
  BlockForm rows;
  BlockForm columns;
  float* amax = nullptr;
  RngKey key;
  const StepInputs* position = nullptr;
  uint32_t rotation = 0;

  constexpr bool empty() const { return !rows.wanted() && !columns.wanted() && amax == nullptr; }
};

// A form [L, K] as it is read again; the tensor's scale is absent where there is none.
struct BlockScaledView {
  DType dtype = DType::kE2M1;
  const void* values = nullptr;
  const uint8_t* scales = nullptr;
  const float* tensor_scale = nullptr;
};

// Elements that share a scale along the blocks' axis.
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
constexpr size_t SwizzledScaleBytes(int64_t rows, int64_t blocks) {
  return static_cast<size_t>((rows + 127) / 128 * ((blocks + 3) / 4) * 512);
}
// Bytes of the values and of the scales of a form [L, K].
constexpr size_t BlockValueBytes(DType dtype, int64_t lines, int64_t extent) {
  return DTypeBytes(dtype, lines * extent);
}
constexpr size_t BlockScaleBytes(DType dtype, int64_t lines, int64_t extent) {
  return SwizzledScaleBytes(lines, (extent + BlockLength(dtype) - 1) / BlockLength(dtype));
}

}  // namespace hearth::kernels
