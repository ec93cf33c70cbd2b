// The exponential moving average of a tensor, updated once a step:
//   y += rate * (x - y),  rate = (1 - decay) / (1 - decay^step)
// After step t this is the mean of the x of steps 1 to t, with weights that fall by the factor
// `decay` from each step to the one before: the average with Adam's correction for its start
// (Kingma and Ba, arXiv 1412.6980, section 3), kept corrected. The rate of step 1 is 1.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/door.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {

//   x      : kBF16, or the type of y
//   y      : as many elements, kF32; on the CPU also kF64; updated
//   decay  : 0 < decay < 1
//   step   : t >= 1; ignored if there are `inputs`
//   inputs : optional, on the tensors' device: its step counts
//   skip   : optional, one int32 on the tensors' device: if it is not 0 nothing is written
// Bits independent of exec.threads and of how a tensor is cut; those of CPU and CUDA differ by
// roundings. Errors: kInvalidArgument (count, types, decay, step); kUnimplemented (kF64 on CUDA).
struct MovingAverageArgs {
  TensorView x;
  TensorView y;
  double decay = 0.0;
  int64_t step = 1;
  const StepInputs* inputs = nullptr;
  const int32_t* skip = nullptr;
};

HEARTH_DECLARE_OP(MovingAverage, MovingAverageArgs);

}  // namespace hearth::kernels
