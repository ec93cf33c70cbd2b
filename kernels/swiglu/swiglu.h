// SwiGLU on the fused projection: the row is [gate: F | up: F], y = silu(gate) * up.
// T = kF32 or kF64 (CPU), A (CUDA, core/exec.h), the same for all views of a call. Bits independent
// of exec.threads.
// Errors: kInvalidArgument (shape, dtype); kUnimplemented (rounding, storage).
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

//   gate_up : [N, 2F] T       y : [N, F] T, no aliasing; may be absent if y_quant has values
struct SwigluForwardArgs {
  TensorView gate_up;
  TensorView y;
  QuantView y_quant;
  DType round_y = DType::kF32;
};

absl::Status CanImplement(const SwigluForwardArgs& args);
size_t SwigluForwardWorkspaceBytes(const SwigluForwardArgs& args);  // 0
absl::Status SwigluForward(const Exec& exec, const SwigluForwardArgs& args);

//   dy : [N, F] T     gate_up, d_gate_up : [N, 2F] T; d_gate_up may alias gate_up, and may be
//                     absent if d_gate_up_quant has values
struct SwigluBackwardArgs {
  TensorView dy;
  TensorView gate_up;
  TensorView d_gate_up;
  QuantView d_gate_up_quant;
  DType round_d_gate_up = DType::kF32;
};

absl::Status CanImplement(const SwigluBackwardArgs& args);
size_t SwigluBackwardWorkspaceBytes(const SwigluBackwardArgs& args);  // 0
absl::Status SwigluBackward(const Exec& exec, const SwigluBackwardArgs& args);

namespace cuda {
absl::Status SwigluForward(const Exec& exec, const SwigluForwardArgs& args);
absl::Status SwigluBackward(const Exec& exec, const SwigluBackwardArgs& args);
}  // namespace cuda

}  // namespace hearth::kernels
