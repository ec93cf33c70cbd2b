// In which order the FP8 kernels copy the rows of a weight to shared memory.
//
// A thread's sums of a row are columns 8 j + 2 (lane % 4) and the next of the product, for each j
// (hopper.cuh): two here, two eight further on. Row 8 j + 2 q + i of a tile is row c q + 2 j + i of
// the weight, so that these columns are c in a row for the thread, from c (lane % 4) on. One box
// does it: seen as a tensor whose dimensions are k, i, q, j and the half of the tile, the weight
// has these rows in the order in which a box lies in memory, the first dimension innermost.
#pragma once

#include <cstdint>

#include "kernels/cuda/tensor_boxes.h"

namespace hearth::kernels::cuda::gated {

inline constexpr int kWeightBoxDepth = 128;
inline constexpr int kWeightBoxRows = 64;  // half of a tile
inline constexpr int kThreadsOfRow = 4;    // q
inline constexpr int kWeightBoxPairs = 8;  // j

// `weight` [., K] of bytes, in `groups` of `cols` rows (c), kThreadsOfRow of them in a tile; a
// tile's other half is `half` rows further down. A box is at (k, 0, first group, 0, which half).
inline TensorBoxes WeightBoxes(
    const void* weight, int64_t K, int64_t cols, int64_t groups, int64_t half) {
  TensorBoxes boxes;
  boxes.data = weight;
  boxes.element_bytes = 1;
  boxes.rank = 5;
  boxes.extents = {K, 2, groups, kWeightBoxPairs, 2};
  boxes.pitches = {K, cols * K, 2 * K, half * K};
  boxes.box = {kWeightBoxDepth, 2, kThreadsOfRow, kWeightBoxPairs, 1};
  return boxes;
}

// Forward, the weight of gate and up [2 F, K], F a multiple of 16: half of a tile is of gate, the
// other of up, and a thread has 16 columns of each.
inline constexpr int kForwardThreadCols = 16;
inline TensorBoxes GateUpBoxes(const void* weight, int64_t K, int64_t F) {
  return WeightBoxes(weight, K, kForwardThreadCols, F / kForwardThreadCols, F);
}

// Backward, the down projection's weight by columns [F, K], F a multiple of 32: a thread has 32
// columns of 128, and half of a tile is half of each thread's.
inline constexpr int kGradientCols = 128;
inline TensorBoxes DownBoxes(const void* weight, int64_t K, int64_t F) {
  constexpr int kCols = kGradientCols / kThreadsOfRow;
  return WeightBoxes(weight, K, kCols, F / kCols, kCols / 2);
}

}  // namespace hearth::kernels::cuda::gated
