// y = alpha * x + beta * y, elementwise: zeroing, copying, scaling and accumulating buffers.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

//   x, y  : same number of elements, the same of kF32 or kF64 on the CPU, A on CUDA; y may alias x
//           (exactly)
//   beta  : 0: y is not read, NaN in it does not spread
//   round : the result is rounded to it
// Bits independent of exec.threads. Errors: kInvalidArgument (shape, dtype); kUnimplemented.
struct ScaleArgs {
  TensorView x;
  TensorView y;
  double alpha = 1.0;
  double beta = 0.0;
  DType round = DType::kF32;
};

HEARTH_DECLARE_OP(Scale, ScaleArgs);

}  // namespace hearth::kernels
