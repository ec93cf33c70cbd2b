// From a complete spec to the loaders of its data on this machine.
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

// Whether the loss masks of the data say which targets count.
bool UsesLossMask(const v1::JobSpec& spec);

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
