// Weights of a Hugging Face model folder into the memory of a run.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/io/env.h"
#include "common/weights/model_files.h"
#include "kernels/core/exec.h"
#include "worker/trainer/model/parameter_store.h"

namespace hearth::trainer {

// Masters and weights, of either device; on a GPU they are there when the stream gets there. The
// host holds all of them in fp32 meanwhile. Errors: those of LoadHfWeights
// (checkpoint/hf_model.h).
absl::Status LoadFolderWeights(Env& env,
                               const std::string& dir,
                               const kernels::Exec& exec,
                               const ParameterStore& parameters,
                               weights::WeightChoice choice = weights::WeightChoice::kStep);

}  // namespace hearth::trainer
