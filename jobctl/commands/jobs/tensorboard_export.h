// `jobctl metrics --tensorboard DIR`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {

// Writes DIR/JOB/<event file> for each job: the steps in force, and with `follow` (one job only)
// new ones until the job ends. A file of an earlier call is written again from its beginning.
absl::StatusOr<int> WriteTensorBoard(Context& context,
                                     const std::vector<std::string>& job_ids,
                                     const std::string& dir,
                                     bool follow);

}  // namespace hearth::jobctl
