// Completing a resolved spec with what lies on this machine: dataset vocabularies and the folder of
// model.from.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/data/loader.h"

namespace hearth::trainer {

// Fills model.vocab and the shape of model.from. kInvalidArgument lists all violations; errors of
// opening the datasets and the model folder as they are.
absl::Status CompleteSpec(v1::JobSpec& spec, Env& env);

// The loader of data.train or data.validation of a complete spec. Held-out data is read front to
// back.
absl::StatusOr<std::unique_ptr<Loader>> OpenLoader(
    const v1::JobSpec& spec,
    const google::protobuf::RepeatedPtrField<v1::DataSource>& sources,
    bool shuffle,
    Env& env);

// The first training dataset that carries a tokenizer, for checkpoints; empty when none does.
std::string TokenizerFolder(const Loader& loader);

}  // namespace hearth::trainer
