// In which order the FP8 kernels copy the rows of the weight to shared memory; first forward, the
// weight [2 F, K] of gate and up.
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

// Backward, the down projection's weight by columns [F, K]: a thread has 32 columns in a row of
// 128. A box is half of the tile, the first or the last of the thread's pairs of columns.
inline constexpr int kGradientCols = 128;
inline constexpr int kGradientThreads = 4;  // of a row
inline constexpr int kGradientBoxPairs = 8;

// `weight` [F, K] of bytes; F is a multiple of 32. A box is at (k, 0, column of dy / 32, first
// pair).
inline TensorBoxes GradientWeightBoxes(const void* weight, int64_t K, int64_t F) {
  constexpr int64_t kCols = kGradientCols / kGradientThreads;
  TensorBoxes boxes;
  boxes.data = weight;
  boxes.element_bytes = 1;
  boxes.rank = 4;
  boxes.extents = {K, 2, F / kCols, kCols / 2};
  boxes.pitches = {K, kCols * K, 2 * K};
  boxes.box = {kWeightBoxDepth, 2, kGradientThreads, kGradientBoxPairs};
  return boxes;
}

}  // namespace hearth::kernels::cuda::gated
