// Completing a resolved spec with what lies on this machine: dataset vocabularies and the folder of
// model.from.
#pragma once

#include "absl/status/status.h"
#include "common/io/env.h"
#include "hearth/v1/job.pb.h"

namespace hearth::facts {

// Fills model.vocab and the shape of model.from, and checks the datasets. kInvalidArgument lists
// all violations; errors of opening the datasets and the model folder as they are.
absl::Status CompleteSpec(v1::JobSpec& spec, Env& env);

// The same as far as a memory plan needs it: datasets are opened only if nothing else gives the
// vocabulary.
absl::Status CompleteForPlan(v1::JobSpec& spec, Env& env);

}  // namespace hearth::facts
