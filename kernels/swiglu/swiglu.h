// SwiGLU on the fused projection: the row is [gate: F | up: F], y = silu(gate) * up.
// T = kF32 or kF64 (CPU), A (CUDA, core/exec.h), the same for all views of a call. Bits independent
// of exec.threads.
// Errors: kInvalidArgument (shape, dtype); kUnimplemented (rounding, storage).
#pragma once

#include "absl/status/status.h"
#include "kernels/core/activation.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

//   gate_up : [N, 2F] T       y : [N, F] T, no aliasing
struct SwigluForwardArgs : ActivationOutputs {
  TensorView gate_up;
};

HEARTH_DECLARE_OP(SwigluForward, SwigluForwardArgs);

//   dy : [N, F] T     gate_up, d_gate_up : [N, 2F] T; d_gate_up may alias gate_up, and may be
//                     absent if d_gate_up_quant has values or there are d_gate_up_blocks
//   d_gate_up_blocks: as y_blocks forward; F is a multiple of 128. In fp32 on CUDA d_gate_up is not
//                     gate_up then
//   kept            : as forward
//   y_quant         : y once more, as SwigluForward makes it of `kept`: the columns alone, without
//                     amax, beside columns of d_gate_up_quant
struct SwigluBackwardArgs {
  TensorView dy;
  TensorView gate_up;
  TensorView d_gate_up;
  QuantView d_gate_up_quant;
  DType round_d_gate_up = DType::kF32;
  BlockQuantView d_gate_up_blocks;
  KeptInput kept;
  QuantView y_quant;
  DType round_y = DType::kF32;
};

HEARTH_DECLARE_OP(SwigluBackward, SwigluBackwardArgs);

}  // namespace hearth::kernels
