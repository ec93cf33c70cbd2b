// GELU of x + bias. T = kF32 or kF64 (CPU), A (CUDA, core/exec.h), the same for all views of a
// call. `kind` is kGelu or kGeluTanh. Bits independent of exec.threads. Errors: kInvalidArgument
// (shape, dtype, kind); kUnimplemented (rounding, storage).
#pragma once

#include "absl/status/status.h"
#include "kernels/core/activation.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// y = round_y(gelu(x + bias))
//   x, y : [N, F] T; y may alias x (backward then lacks its input)
//   bias : [F] T, optional
struct GeluForwardArgs : ActivationOutputs {
  TensorView x;
  TensorView bias;
  Activation kind = Activation::kGelu;
};

HEARTH_DECLARE_OP(GeluForward, GeluForwardArgs);

// dx = round_dx(dy * gelu'(x + bias)). The gradient of bias is the ColumnSum of dx (gemm.h).
//   dy, x, dx : [N, F] T; dx may alias dy or x, and may be absent if dx_quant has values
//               or there are dx_blocks
//   bias      : [F] T, present if it was in forward
//   dx_blocks, kept : as forward's, of dx
struct GeluBackwardArgs {
  TensorView dy;
  TensorView x;
  TensorView bias;
  TensorView dx;
  QuantView dx_quant;
  Activation kind = Activation::kGelu;
  DType round_dx = DType::kF32;
  BlockQuantView dx_blocks;
  KeptInput kept;
};

HEARTH_DECLARE_OP(GeluBackward, GeluBackwardArgs);

}  // namespace hearth::kernels
