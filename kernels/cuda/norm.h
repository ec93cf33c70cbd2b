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
// Block-scaled forms of y [., cols] in one pass; `statistics`: rstd is kept.
inline bool NormWritesBlocks(const Exec& exec, int64_t cols, bool statistics) {
  return exec.device == Device::kCpu ||
         (statistics && cols <= kNormMaxCols && exec.cuda->gpu().major >= 9);
}

}  // namespace hearth::kernels::cuda
