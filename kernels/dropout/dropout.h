// Inverted dropout: y = x / (1 - p) where kept, else 0. Whether an element is kept is a pure
// function of (key, first_element + its index): backward recomputes the mask from the same key, and
// nothing depends on ranks or threads.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"
#include "kernels/core/rng.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {

//   x, y : same number of elements, T = kF32 or kF64 (CPU), A (CUDA, core/exec.h); y may alias x
//   residual : optional, added after: y = round_y(residual + dropout(x)); forward only
//   p    : probability of dropping, 0 <= p < 1; kept if RngUniform >= p
//   position : optional, one on the tensors' device: its step and micro_batch, read while the op
//              runs, stand for the key's, so that a captured launch drops others on replay
// The mask has the same bits on every device.
// Errors: kInvalidArgument (shape, dtype, p); kUnimplemented (rounding, storage).
struct DropoutArgs {
  TensorView x;
  TensorView residual;
  TensorView y;
  double p = 0.0;
  const StepInputs* position = nullptr;
  RngKey key;                  // purpose kDropout; tensor = a number unique within the model
  uint64_t first_element = 0;  // a multiple of 4
  DType round_y = DType::kF32;
};

HEARTH_DECLARE_OP(DropoutForward, DropoutArgs);
// x = dy, y = dx, same p, key and first_element as forward; residual must be empty.
absl::Status DropoutBackward(const Exec& exec, const DropoutArgs& args);

}  // namespace hearth::kernels
