// What the sizes of the norms' workspaces follow from, and where they write block-scaled forms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/core/exec.h"

namespace hearth::kernels::cuda {

// Blocks at most that sum weight gradients, each over its own rows.
constexpr int64_t NormPartials(int64_t rows) {
  return std::clamp<int64_t>((rows + 15) / 16, 1, 512);
}
// Bytes of the partial sums of one gradient [cols].
constexpr size_t NormPartialBytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(NormPartials(rows) * cols) * sizeof(float);
}

// Block-scaled forms of y in one pass.
inline bool NormWritesBlocks(const Exec& exec, int64_t, bool) {
  return exec.device == Device::kCpu;
}

}  // namespace hearth::kernels::cuda
