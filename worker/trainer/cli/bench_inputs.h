// Scalars of a measured step.
#pragma once

#include <cmath>

#include "hearth/v1/job.pb.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::trainer {

// Those of a job's first step, at a learning rate that leaves the weights finite for as long as
// anybody measures. `tokens`: of the global batch, all of which count.
inline kernels::StepInputs BenchInputs(const v1::JobSpec& spec, int64_t tokens) {
  kernels::StepInputs inputs;
  inputs.loss_limit = HUGE_VAL;
  inputs.grad_norm_limit = HUGE_VAL;
  inputs.tokens = static_cast<double>(tokens);
  inputs.max_norm = spec.optimizer().grad_clip();
  inputs.learning_rate = 1e-4;
  inputs.bias_correction1 = 1 - spec.optimizer().beta1();
  inputs.bias_correction2 = 1 - spec.optimizer().beta2();
  inputs.step = 1;
  return inputs;
}

}  // namespace hearth::trainer
