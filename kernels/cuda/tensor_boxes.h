// A tensor and the boxes in which TMA copies it (cuda/tensor_map.h). No CUDA here: tests on the CPU
// look at it, too.
#pragma once

#include <array>
#include <cstdint>

namespace hearth::kernels::cuda {

inline constexpr int kMostDimensions = 5;

struct TensorBoxes {
  const void* data = nullptr;  // aligned to 16 bytes
  int element_bytes = 2;       // 2: bf16; 1: bytes
  int rank = 2;
  // From the innermost dimension on, in elements; the first `rank` count.
  std::array<int64_t, kMostDimensions> extents = {};
  // Bytes from one index of dimensions 1 and on to the next, multiples of 16, in any order of size:
  // dimension 0 is contiguous.
  std::array<int64_t, kMostDimensions - 1> pitches = {};
  // At most 256 each. Dimension 0 is 64 or 128 bytes, and rows of it are swizzled in shared memory.
  std::array<uint32_t, kMostDimensions> box = {};
};

// A matrix, row by row, with `pitch` elements from row to row.
inline TensorBoxes MatrixBoxes(const void* data,
                               int element_bytes,
                               int64_t rows,
                               int64_t cols,
                               int64_t pitch,
                               uint32_t box_rows,
                               uint32_t box_cols) {
  TensorBoxes boxes;
  boxes.data = data;
  boxes.element_bytes = element_bytes;
  boxes.extents = {cols, rows};
  boxes.pitches = {pitch * element_bytes};
  boxes.box = {box_cols, box_rows};
  return boxes;
}

}  // namespace hearth::kernels::cuda
