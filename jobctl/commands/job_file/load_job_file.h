// Reads job files for commands: applies --set, and makes paths of this machine absolute.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hearth/v1/job_spec.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::jobctl {

// Applies --set in order. kInvalidArgument lists all that are wrong, one a line that begins with
// "--set path=value: ", and then all values that are out of range or unknown names.
absl::Status ApplyAssignments(const std::vector<std::string>& assignments, v1::JobSpec& spec);
// The same to a spec with all defaults: resources.min_workers stays equal to workers if it was.
// Other values that once followed from a changed one stay as they are.
absl::Status ChangeStoredSpec(const std::vector<std::string>& assignments, v1::JobSpec& spec);

// Reads the job file, applies --set in order, and makes paths that begin with ~ or . absolute.
// kInvalidArgument lists the mistakes of both, as ApplyAssignments.
absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path,
                                        const std::vector<std::string>& assignments);

// A warning if the job cannot start with `workers`, which are all that the coordinator knows: none
// has resources.device ("cpu" or "cuda") and the labels of resources.selector, or fewer of those
// are connected than the job needs; "" otherwise. For a job that needs one worker, those that are
// lost or offline count, because they may come back.
std::string WorkersWarning(const v1::ResourceSpec& resources,
                           const std::vector<v1::Worker>& workers);

}  // namespace hearth::jobctl
