// RMSNorm, plain or fused with the residual addition before it. Row by row:
//   s = round_sum(x + residual)          (s = x without residual; then round_sum is not applied)
//   y = round_y(s * rstd * weight),      rstd = 1 / sqrt(mean(s^2) + eps)
// Bits independent of exec.threads. T: kF32 or kF64 on the CPU, A on CUDA (core/exec.h), the same
// for all views of a call; S, of statistics: T on the CPU, kF32 on CUDA; G, of weight gradients: T
// on the CPU, kF32 or kBF16 on CUDA.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

//   x, y     : [N, C] T; y may alias x, and may be absent if y_quant has values or there are
//              y_blocks
//   residual : [N, C] T, optional
//   sum      : [N, C] T, present exactly if residual is; s is written here; may alias x or
//   residual,
//              not y. Keep s (or x, without residual) for backward.
//   weight   : [C] T         rstd : [N] S, kept for backward; optional (evaluation)
//   y_quant  : optional; of y
//   y_blocks : optional, instead of y_quant: block-scaled forms of y, the bits that BlockQuantize
//              (block_quantize.h) gives of it, with what BlockQuantize asks of shapes
// Errors: kInvalidArgument (shape, dtype); kUnimplemented (storage, rounding).
// CUDA: every byte moves once if C is a multiple of 8 (16 for columns) and at most 8192. With
// y_blocks rstd is present, C is at most 8192 and all views are aligned to 16 bytes; blocks of a
// cluster share 128 rows and read s a second time, from the L2 cache: of NVFP4 in both directions
// with a residual 7.1 bytes an element (bf16) are the floor.
struct RmsNormForwardArgs {
  TensorView x;
  TensorView residual;
  TensorView weight;
  TensorView sum;
  TensorView y;
  TensorView rstd;
  QuantView y_quant;
  BlockQuantView y_blocks;
  double eps = 1e-5;
  DType round_sum = DType::kF32;
  DType round_y = DType::kF32;
};

absl::Status CanImplement(const RmsNormForwardArgs& args);
size_t RmsNormForwardWorkspaceBytes(const RmsNormForwardArgs& args);  // 0
// Whether y_blocks beside the other arguments saves time: else BlockQuantize makes them of y. On
// the CPU always; on CUDA what is said above, and compute capability 9.0 (clusters).
bool WritesBlocks(const Exec& exec, const RmsNormForwardArgs& args);
absl::Status RmsNormForward(const Exec& exec, const RmsNormForwardArgs& args);

// d_s = round_dx(d_norm(dy) + d_sum), written to dx; with a fused residual it is the gradient of
// both x and residual. d_weight += sum over rows of dy * s * rstd.
//   dy       : [N, C] T      s : [N, C] T, the saved sum (or x)     rstd : [N] S
//   weight   : [C] T
//   d_sum    : [N, C] T, optional: the gradient that reaches s along the residual stream
//   dx       : [N, C] T; may alias dy or d_sum
//   dx_quant : optional; of dx
//   dx_blocks: optional, instead of dx_quant, beside dx: its block-scaled forms, the bits that
//              BlockQuantize gives of it, with what BlockQuantize asks of shapes
//   d_weight : [C] G, accumulated into; optional
// Workspace: RmsNormBackwardWorkspaceBytes (partial sums of d_weight).
// CUDA: with dx_blocks C is at most 8192 and all views are aligned to 16 bytes; blocks of a cluster
// share 128 rows and read their dx once more, from the L2 cache: of NVFP4 in both directions with
// d_sum 9.1 bytes an element (bf16) are the floor, 11.1 with BlockQuantize after it.
struct RmsNormBackwardArgs {
  TensorView dy;
  TensorView s;
  TensorView rstd;
  TensorView weight;
  TensorView d_sum;
  TensorView dx;
  QuantView dx_quant;
  BlockQuantView dx_blocks;
  TensorView d_weight;
  DType round_dx = DType::kF32;
};

absl::Status CanImplement(const RmsNormBackwardArgs& args);
size_t RmsNormBackwardWorkspaceBytes(const RmsNormBackwardArgs& args);
// Whether dx_blocks beside the other arguments saves time, as above: on the CPU always; on CUDA if
// the shape is one that it takes, from compute capability 9.0 on, and a block's shared memory has
// room, as it always has for bf16.
bool WritesBlocks(const Exec& exec, const RmsNormBackwardArgs& args);
absl::Status RmsNormBackward(const Exec& exec, const RmsNormBackwardArgs& args);

namespace cuda {
absl::Status RmsNormForward(const Exec& exec, const RmsNormForwardArgs& args);
absl::Status RmsNormBackward(const Exec& exec, const RmsNormBackwardArgs& args);
}  // namespace cuda

}  // namespace hearth::kernels
