// LayerNorm, plain or fused with the residual addition before it. Row by row:
//   s = round_sum(x + residual)          (s = x without residual; then round_sum is not applied)
//   y = round_y((s - mean) * rstd * weight + bias),  rstd = 1 / sqrt(var(s) + eps), var biased
// Bits independent of exec.threads. T: kF32 or kF64 on the CPU, A on CUDA (core/exec.h), the same
// for all views of a call; S, of statistics: T on the CPU, kF32 on CUDA; G, of weight gradients: T
// on the CPU, kF32 or kBF16 on CUDA, the same for both.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

//   x, y       : [N, C] T; y may alias x, and may be absent if y_quant has values or there are
//                y_blocks
//   residual   : [N, C] T, optional
//   sum        : [N, C] T, present exactly if residual is; s is written here; may alias x or
//                residual, not y. Keep s (or x, without residual) for backward.
//   weight     : [C] T      bias : [C] T, optional
//   mean, rstd : [N] S, kept for backward; both or neither
//   y_quant    : optional; of y
//   y_blocks   : optional, instead of y_quant: block-scaled forms of y, the bits that BlockQuantize
//                (block_quantize.h) gives of it, with what BlockQuantize asks of shapes
// Errors: kInvalidArgument (shape, dtype); kUnimplemented (storage, rounding).
// CUDA: every byte moves once if C is a multiple of 8 (16 for columns) and at most 8192. With
// y_blocks as rmsnorm.h says.
struct LayerNormForwardArgs {
  TensorView x;
  TensorView residual;
  TensorView weight;
  TensorView bias;
  TensorView sum;
  TensorView y;
  TensorView mean;
  TensorView rstd;
  QuantView y_quant;
  BlockQuantView y_blocks;
  double eps = 1e-5;
  DType round_sum = DType::kF32;
  DType round_y = DType::kF32;
};

absl::Status CanImplement(const LayerNormForwardArgs& args);
size_t LayerNormForwardWorkspaceBytes(const LayerNormForwardArgs& args);  // 0
bool WritesBlocks(const Exec& exec, const LayerNormForwardArgs& args);    // as in rmsnorm.h
absl::Status LayerNormForward(const Exec& exec, const LayerNormForwardArgs& args);

// d_s = round_dx(d_norm(dy) + d_sum), written to dx; with a fused residual it is the gradient of
// both x and residual. d_weight += sum of dy * (s - mean) * rstd; d_bias += sum of dy.
//   dy       : [N, C] T      s : [N, C] T, the saved sum (or x)     mean, rstd : [N] S
//   weight   : [C] T
//   d_sum    : [N, C] T, optional: the gradient that reaches s along the residual stream
//   dx       : [N, C] T; may alias dy or d_sum
//   dx_quant : optional; of dx
//   dx_blocks: optional, instead of dx_quant: as rmsnorm.h says
//   d_weight, d_bias : [C] G, accumulated into; each optional
// Workspace: LayerNormBackwardWorkspaceBytes (partial sums).
struct LayerNormBackwardArgs {
  TensorView dy;
  TensorView s;
  TensorView mean;
  TensorView rstd;
  TensorView weight;
  TensorView d_sum;
  TensorView dx;
  QuantView dx_quant;
  BlockQuantView dx_blocks;
  TensorView d_weight;
  TensorView d_bias;
  DType round_dx = DType::kF32;
};

absl::Status CanImplement(const LayerNormBackwardArgs& args);
size_t LayerNormBackwardWorkspaceBytes(const LayerNormBackwardArgs& args);
bool WritesBlocks(const Exec& exec, const LayerNormBackwardArgs& args);  // as in rmsnorm.h
absl::Status LayerNormBackward(const Exec& exec, const LayerNormBackwardArgs& args);

namespace cuda {
absl::Status LayerNormForward(const Exec& exec, const LayerNormForwardArgs& args);
absl::Status LayerNormBackward(const Exec& exec, const LayerNormBackwardArgs& args);
}  // namespace cuda

}  // namespace hearth::kernels
