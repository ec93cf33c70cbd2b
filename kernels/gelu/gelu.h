// GELU of x + bias. T = kF32 or kF64, the same for all views of a call.
// Bits independent of exec.threads.
// Errors: kInvalidArgument (shape, dtype); kUnimplemented (y_quant, rounding).
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

enum class GeluKind : uint8_t {
  kErf,   // "gelu": 0.5 u (1 + erf(u / sqrt 2))
  kTanh,  // "gelu_tanh", "gelu_new", "gelu_pytorch_tanh"
};

// y = round_y(gelu(x + bias))
//   x, y : [N, F] T; y may alias x (backward then lacks its input)      bias : [F] T, optional
struct GeluForwardArgs {
  TensorView x;
  TensorView bias;
  TensorView y;
  QuantView y_quant;  // must be empty on the CPU
  GeluKind kind = GeluKind::kErf;
  DType round_y = DType::kF32;
};

absl::Status CanImplement(const GeluForwardArgs& args);
size_t GeluForwardWorkspaceBytes(const GeluForwardArgs& args);  // 0
absl::Status GeluForward(const Exec& exec, const GeluForwardArgs& args);

// dx = round_dx(dy * gelu'(x + bias)). The gradient of bias is the ColumnSum of dx (gemm.h).
//   dy, x, dx : [N, F] T; dx may alias dy or x       bias : [F] T, present if it was in forward
struct GeluBackwardArgs {
  TensorView dy;
  TensorView x;
  TensorView bias;
  TensorView dx;
  GeluKind kind = GeluKind::kErf;
  DType round_dx = DType::kF32;
};

absl::Status CanImplement(const GeluBackwardArgs& args);
size_t GeluBackwardWorkspaceBytes(const GeluBackwardArgs& args);  // 0
absl::Status GeluBackward(const Exec& exec, const GeluBackwardArgs& args);

}  // namespace hearth::kernels
