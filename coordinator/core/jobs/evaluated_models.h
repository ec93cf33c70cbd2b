// Which models a job of task: eval evaluates. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/core/jobs/jobs.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// For Job.models of a new job: the folders of evaluate.models; or the recorded checkpoints of
// evaluate.job, all or those of evaluate.steps, the earliest step first; empty for a task that
// trains. Checkpoints lie in one root, so that one worker can read all. kInvalidArgument
// NOTHING_TO_EVALUATE, naming the field: no such job or checkpoint, too many, or several roots.
// kPermissionDenied NOT_YOUR_JOB: evaluate.job does not belong to `owner`; nullopt: it may be
// anybody's. To evaluate is to read weights, as downloads and texts do, and it keeps checkpoints
// from being dropped.
absl::StatusOr<google::protobuf::RepeatedPtrField<v1::EvaluatedModel>> EvaluatedModels(
    const v1::JobSpec& spec, const Jobs& jobs, const std::optional<std::string>& owner);

}  // namespace hearth::coordinator
