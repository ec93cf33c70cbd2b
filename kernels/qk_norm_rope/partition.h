// How the CUDA version of backward divides the sums of the weight gradients: fixed, so that the
// bits depend on shapes alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace hearth::kernels {

// Rows of one partial sum.
inline constexpr int kRopeTileRows = 128;

// Partial sums of the weight gradients, f32: [tiles of rows, Hq + Hkv, D].
inline size_t RopePartialBytes(const QkHeads& dims, int64_t rows) {
  const int64_t tiles = (rows + kRopeTileRows - 1) / kRopeTileRows;
  return static_cast<size_t>(tiles * (dims.heads + dims.kv_heads) * dims.head_dim) * sizeof(float);
}

namespace cuda {
// kUnimplemented: a head_dim that the CUDA version does not have.
absl::Status RequireRopeShape(const QkHeads& dims);
}  // namespace cuda

}  // namespace hearth::kernels
