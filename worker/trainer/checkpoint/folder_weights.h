// Weights of a Hugging Face model folder into the memory of a run.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/weights/model_files.h"
#include "kernels/core/exec.h"
#include "worker/trainer/model/parameter_store.h"

namespace hearth::trainer {

using HostWeights = std::vector<std::vector<float>>;  // one a parameter, in the table's order

// The folder's weights in the host's memory, fp32. Errors: those of LoadHfWeights
// (checkpoint/hf_model.h): all of them are the files' fault.
absl::StatusOr<HostWeights> ReadFolderWeights(
    Env& env,
    const std::string& dir,
    const ParameterStore& parameters,
    weights::WeightChoice choice = weights::WeightChoice::kStep);

// Fills masters and weights, of either device; on a GPU they are there when the stream gets there.
// Errors are the device's.
absl::Status WriteWeights(const HostWeights& host,
                          const kernels::Exec& exec,
                          const ParameterStore& parameters);

// Both, one after the other.
absl::Status LoadFolderWeights(Env& env,
                               const std::string& dir,
                               const kernels::Exec& exec,
                               const ParameterStore& parameters,
                               weights::WeightChoice choice = weights::WeightChoice::kStep);

}  // namespace hearth::trainer
