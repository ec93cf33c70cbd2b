// What the sizes of the norms' workspaces follow from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hearth::kernels::cuda {

// Blocks at most that sum weight gradients, each over its own rows.
constexpr int64_t NormPartials(int64_t rows) {
  return std::clamp<int64_t>((rows + 15) / 16, 1, 512);
}
// Bytes of the partial sums of one gradient [cols].
constexpr size_t NormPartialBytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(NormPartials(rows) * cols) * sizeof(float);
}

}  // namespace hearth::kernels::cuda
