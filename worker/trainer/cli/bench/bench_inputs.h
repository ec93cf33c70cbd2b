// Scalars of a measured step.
#pragma once

#include <cmath>

#include "absl/types/span.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// Those of a job's first step, at a learning rate that leaves the weights finite for as long as
// anybody measures. `tokens`: of the global batch, all of which count.
inline kernels::StepInputs BenchInputs(Engine& engine, int64_t tokens) {
  kernels::StepInputs inputs;
  inputs.loss_limit = HUGE_VAL;
  inputs.grad_norm_limit = HUGE_VAL;
  inputs.tokens = static_cast<double>(tokens);
  inputs.max_norm = engine.options().spec.optimizer().grad_clip();
  inputs.learning_rate = 1e-4;
  inputs.step = 1;
  engine.optimizer().Scalars(inputs.step, absl::MakeSpan(inputs.optimizer));
  return inputs;
}

}  // namespace hearth::trainer
