// RMSNorm and LayerNorm, plain or fused with the residual addition before them: one implementation,
// two doors. Row by row:
//   s = round_sum(x + residual)          (s = x without residual; then round_sum is not applied)
//   RMSNorm   : y = round_y(s * rstd * weight),  rstd = 1 / sqrt(mean(s^2) + eps)
//   LayerNorm : y = round_y((s - mean) * rstd * weight + bias),
//               rstd = 1 / sqrt(var(s) + eps), var biased
// Bits independent of exec.threads. T: kF32 or kF64 on the CPU, A on CUDA (core/exec.h), the same
// for all views of a call; S, of statistics: T on the CPU, kF32 on CUDA; G, of weight gradients: T
// on the CPU, kF32 or kBF16 on CUDA, the same for all of a call.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

// What forward of both takes. A view that is not called optional is required.
//
// Errors: kInvalidArgument (shape, dtype); kUnimplemented (storage, rounding).
//
// CUDA: every byte moves once if C is a multiple of 8 (16 for columns) and at most 8192. With
// y_blocks rstd is present, C is at most 8192 and all views are aligned to 16 bytes; blocks of a
// cluster share 128 rows and read s a second time, from the L2 cache. With NVFP4 in both directions
// and a residual, at least 7.1 bytes an element (bf16) must move.
struct NormForwardArgs {
  // [N, C] T.
  TensorView x;
  // [N, C] T, optional.
  TensorView residual;
  // [C] T.
  TensorView weight;
  // [N, C] T, present exactly if residual is: s is written here. May alias x or residual, not y.
  // Keep s (or x, without residual) for backward.
  TensorView sum;
  // [N, C] T. May alias x; may be absent if y_quant has values or there are y_blocks.
  TensorView y;
  // [N] S, kept for backward; optional (evaluation).
  TensorView rstd;
  // Optional; of y.
  QuantView y_quant;
  // Optional, instead of y_quant: block-scaled forms of y, the bits that BlockQuantize
  // (block_quantize.h) gives of it, with what BlockQuantize asks of shapes.
  BlockQuantView y_blocks;
  double eps = 1e-5;
  DType round_sum = DType::kF32;
  DType round_y = DType::kF32;
};
struct RmsNormForwardArgs : NormForwardArgs {};
struct LayerNormForwardArgs : NormForwardArgs {
  // [C] T, optional.
  TensorView bias;
  // [N] S, present exactly if rstd is.
  TensorView mean;
};

absl::Status CanImplement(const RmsNormForwardArgs& args);
absl::Status CanImplement(const LayerNormForwardArgs& args);
size_t RmsNormForwardWorkspaceBytes(const RmsNormForwardArgs& args);      // 0
size_t LayerNormForwardWorkspaceBytes(const LayerNormForwardArgs& args);  // 0
// Whether y_blocks beside the other arguments saves time: else BlockQuantize makes them of y. On
// the CPU always; on CUDA what is said above, and compute capability 9.0 (clusters).
bool WritesBlocks(const Exec& exec, const RmsNormForwardArgs& args);
bool WritesBlocks(const Exec& exec, const LayerNormForwardArgs& args);
absl::Status RmsNormForward(const Exec& exec, const RmsNormForwardArgs& args);
absl::Status LayerNormForward(const Exec& exec, const LayerNormForwardArgs& args);

// d_s = round_dx(d_norm(dy) + d_sum), written to dx; with a fused residual it is the gradient of
// both x and residual. d_weight += sum over rows of dy * (s - mean) * rstd (RMSNorm: without the
// mean); d_bias += sum of dy.
//
// Workspace: *BackwardWorkspaceBytes (partial sums of d_weight and d_bias).
//
// CUDA: with dx_blocks C is at most 8192 and all views are aligned to 16 bytes; blocks of a cluster
// share 128 rows and read their dx once more, from the L2 cache: of NVFP4 in both directions with
// d_sum 9.1 bytes an element (bf16) are the floor, 11.1 with BlockQuantize after it.
struct NormBackwardArgs {
  // [N, C] T.
  TensorView dy;
  // [N, C] T: the saved sum (or x).
  TensorView s;
  // [N] S.
  TensorView rstd;
  // [C] T.
  TensorView weight;
  // [N, C] T, optional: the gradient that reaches s along the residual stream.
  TensorView d_sum;
  // [N, C] T. May alias dy or d_sum.
  TensorView dx;
  // Optional; of dx.
  QuantView dx_quant;
  // Optional, instead of dx_quant, beside dx: its block-scaled forms, the bits that BlockQuantize
  // gives of it, with what BlockQuantize asks of shapes.
  BlockQuantView dx_blocks;
  // [C] G, accumulated into; optional.
  TensorView d_weight;
  DType round_dx = DType::kF32;
};
struct RmsNormBackwardArgs : NormBackwardArgs {};
struct LayerNormBackwardArgs : NormBackwardArgs {
  // [N] S.
  TensorView mean;
  // [C] G, accumulated into; optional.
  TensorView d_bias;
};

absl::Status CanImplement(const RmsNormBackwardArgs& args);
absl::Status CanImplement(const LayerNormBackwardArgs& args);
size_t RmsNormBackwardWorkspaceBytes(const RmsNormBackwardArgs& args);
size_t LayerNormBackwardWorkspaceBytes(const LayerNormBackwardArgs& args);
// Whether dx_blocks beside the other arguments saves time, as above: on the CPU always; on CUDA if
// the shape is one that it takes, from compute capability 9.0 on, and a block's shared memory has
// room, as it always has for bf16.
bool WritesBlocks(const Exec& exec, const RmsNormBackwardArgs& args);
bool WritesBlocks(const Exec& exec, const LayerNormBackwardArgs& args);
absl::Status RmsNormBackward(const Exec& exec, const RmsNormBackwardArgs& args);
absl::Status LayerNormBackward(const Exec& exec, const LayerNormBackwardArgs& args);

}  // namespace hearth::kernels
