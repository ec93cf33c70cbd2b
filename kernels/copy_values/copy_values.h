// y = x bit by bit, by a kernel: what kernels that only read and write memory reach on a GPU. The
// driver's copies (cuda/device.h) are no measure of that: as nodes of a graph they may go through
// the GPU's copy engines, which are slower.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

//   x, y : same number of elements, the same of kF32 or kF64 on the CPU, A on CUDA; no aliasing.
//          CUDA: 16 bytes at a time if both are aligned so and hold a multiple of 16 bytes
// Bits independent of exec.threads. Errors: kInvalidArgument (shape, dtype); kUnimplemented.
struct CopyValuesArgs {
  TensorView x;
  TensorView y;
};

HEARTH_DECLARE_OP(CopyValues, CopyValuesArgs);

}  // namespace hearth::kernels
