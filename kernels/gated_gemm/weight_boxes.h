// In which order fp8_forward.cuh copies the rows of the weight [2 F, K] of gate and up to shared
// memory.
//
// A thread's sums of a row are columns 8 j + 2 (lane % 4) and the next of the product, for each j
// (hopper.cuh): two here, two eight further on. Row 8 j + 2 q + i of a box is row 16 q + 2 j + i of
// the weight's 64, so that these columns are 16 in a row for the thread, from 16 (lane % 4) on. One
// box does it: seen as a tensor whose dimensions are k, i, q, j and the half (gate or up), the
// weight has these rows in the order in which a box lies in memory, the first dimension innermost.
#pragma once

#include <cstdint>

#include "kernels/cuda/tensor_boxes.h"

namespace hearth::kernels::cuda::gated {

inline constexpr int kWeightBoxRows = 64;  // of gate, or of up
inline constexpr int kThreadCols = 16;
inline constexpr int kWeightBoxDepth = 128;

// `weight` [2 F, K] of bytes; F is a multiple of 16. A box is at (k, 0, column of y / 16, 0, half).
inline TensorBoxes WeightBoxes(const void* weight, int64_t K, int64_t F) {
  TensorBoxes boxes;
  boxes.data = weight;
  boxes.element_bytes = 1;
  boxes.rank = 5;
  boxes.extents = {K, 2, F / kThreadCols, kThreadCols / 2, 2};
  boxes.pitches = {K, kThreadCols * K, 2 * K, F * K};
  boxes.box = {kWeightBoxDepth, 2, kWeightBoxRows / kThreadCols, kThreadCols / 2, 1};
  return boxes;
}

}  // namespace hearth::kernels::cuda::gated
