// What the sizes of the norms' workspaces follow from, and where they write block-scaled forms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/core/exec.h"
#include "kernels/cuda/context.h"

namespace hearth::kernels::cuda {

// Blocks at most that sum weight gradients, each over its own rows.
constexpr int64_t NormPartials(int64_t rows) {
  return std::clamp<int64_t>((rows + 15) / 16, 1, 512);
}
// Bytes of the partial sums of one gradient [cols].
constexpr size_t NormPartialBytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(NormPartials(rows) * cols) * sizeof(float);
}

// Columns of the longest row that the norms hold in registers.
inline constexpr int64_t kNormMaxCols = 8192;

// Such a row lies in 1 to 8 warps, a power of two, and in 1 to 4 packs of 8 values a thread; of a
// longer one there would be more packs.
constexpr int64_t NormRowWarps(int64_t cols) {
  int64_t warps = 1;
  while (warps < 8 && cols > 1024 * warps) {
    warps *= 2;
  }
  return warps;
}
constexpr int64_t NormRowPacks(int64_t cols) {
  const int64_t width = 256 * NormRowWarps(cols);
  return (cols + width - 1) / width;
}

// Block-scaled forms of y [., cols] in one pass; `statistics`: rstd is kept.
inline bool NormWritesBlocks(const Exec& exec, int64_t cols, bool statistics) {
  return exec.device == Device::kCpu ||
         (statistics && cols <= kNormMaxCols && exec.cuda->gpu().major >= 9);
}

// Bytes of shared memory of a block that writes those of dx: a tile of 128 x 128 values with its
// scales, and what each of 256 threads has summed for each of its columns, of `gradients` gradients
// (of weight, and of bias).
constexpr int64_t NormGradientBlocksBytes(int64_t value_bytes, int64_t cols, int gradients) {
  return int64_t{128} * 128 * value_bytes + 2816 +
         int64_t{gradients} * NormRowPacks(cols) * 8 * 256 * 4;
}
inline constexpr int64_t kNormStaticBytes = 64;  // on top of those

inline bool NormGradientBlocksFit(const Exec& exec,
                                  int64_t value_bytes,
                                  int64_t cols,
                                  int gradients) {
  return NormGradientBlocksBytes(value_bytes, cols, gradients) + kNormStaticBytes <=
         exec.cuda->gpu().shared_memory_bytes;
}

// Block-scaled forms of dx [., cols] in one pass.
inline bool NormGradientWritesBlocks(const Exec& exec,
                                     int64_t value_bytes,
                                     int64_t cols,
                                     int gradients) {
  return NormWritesBlocks(exec, cols, true) &&
         (exec.device == Device::kCpu || NormGradientBlocksFit(exec, value_bytes, cols, gradients));
}

}  // namespace hearth::kernels::cuda
