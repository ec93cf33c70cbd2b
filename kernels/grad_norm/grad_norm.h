// Global gradient norm and the guard's non-finite check, in one pass over many tensors.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// sum_squares = sum over all elements of x^2, in double: blocks of 4096 elements of each tensor,
// then the blocks, both in an order that depends on the sizes alone. Bits independent of
// exec.threads and of the GPU; a tensor split at a multiple of 4096 elements gives the same blocks.
//   On CUDA eight squares at a time are summed in fp32 (double arithmetic is scarce on GeForce), a
//   block whose sum leaves [2^-100, 2^127] again in double: relative error <= 2^-21.
// nonfinite   = number of elements that are NaN or infinite (they also make sum_squares so).
//   tensors : each T = kF32 or kF64 (CPU), kF32 or kBF16 (CUDA)
//   sum_squares, nonfinite : one each, on the tensors' device; overwritten; nonfinite may be null
// Workspace: one double and one int64 per block.
struct SumSquaresArgs {
  absl::Span<const TensorView> tensors;
  double* sum_squares = nullptr;
  int64_t* nonfinite = nullptr;
};

size_t SumSquaresWorkspaceBytes(const SumSquaresArgs& args);
HEARTH_DECLARE_OP(SumSquares, SumSquaresArgs);

// min(1, max_norm / (norm + 1e-6)), torch.nn.utils.clip_grad_norm_. max_norm <= 0: no clipping, 1.
// A norm that is not finite gives 1: the guard decides, not the clip.
float ClipFactor(double norm, double max_norm);

namespace cpu {
size_t SumSquaresWorkspaceBytes(const SumSquaresArgs& args);
}  // namespace cpu

}  // namespace hearth::kernels
