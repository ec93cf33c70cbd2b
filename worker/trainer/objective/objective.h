// Objectives: how the output projection and the loss run, keyed by the rows of
// common/spec/objective/objective_table.h.
#pragma once

#include "absl/status/status.h"
#include "common/spec/objective/objective_table.h"
#include "kernels/core/exec.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace hearth::trainer {

struct ObjectiveDef {
  spec::ObjectiveKind kind = spec::ObjectiveKind::kPretrain;
  // Adds sum of w * nll and sum of w; with gradients where the arguments ask for them. The loss
  // weights of the batch say which tokens count, so one head serves every objective that is a
  // weighted likelihood.
  absl::Status (*head)(const kernels::Exec& exec,
                       const kernels::LinearCrossEntropyArgs& args) = nullptr;
};

// nullptr when this engine has no such objective.
const ObjectiveDef* FindObjectiveDef(spec::ObjectiveKind kind);

}  // namespace hearth::trainer
