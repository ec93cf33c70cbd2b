// One micro-batch on its way through the model.
#pragma once

#include <cstdint>

#include "kernels/step_gate/step_gate.h"

namespace hearth::trainer {

struct Pass {
  // Key of dropout.
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t micro_batch = 0;  // global index within the step
  bool dropout = false;      // training only
  // Add to the gradients. False: the step's first micro-batch; weight gradients of linear layers
  // are overwritten, the others were set to zero before.
  bool accumulate = true;
  // Linear layers read the narrow formats of the recipe.
  bool quantised = false;
  // Record largest magnitudes for delayed scaling: training alone.
  bool record = false;
  // Where step and micro_batch are read from when the launch is replayed; beside the tensors. Null:
  // the fields above.
  const kernels::StepInputs* position = nullptr;
};

}  // namespace hearth::trainer
