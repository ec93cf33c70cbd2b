// Descriptions of tensors for TMA (cuda/hopper.cuh).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "absl/status/status.h"

namespace hearth::kernels::cuda {

// A matrix of bf16, row by row, and the boxes in which it is copied.
struct MatrixBoxes {
  const void* data = nullptr;  // aligned to 16 bytes
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t pitch = 0;      // elements from row to row, a multiple of 8
  uint32_t box_rows = 0;  // at most 256
  uint32_t box_cols = 0;  // 32 or 64: rows of a box are 64 or 128 bytes, and swizzled
};

// kUnavailable: the driver has no TMA; kInvalidArgument: it does not take the matrix.
absl::Status MakeTensorMap(const MatrixBoxes& matrix, CUtensorMap& map);

}  // namespace hearth::kernels::cuda
