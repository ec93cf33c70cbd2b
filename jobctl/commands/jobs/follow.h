// Following a job on the terminal.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {

struct FollowOptions {
  std::string job_id;
  bool exit_status = true;  // map the end state to the exit codes; else 0
  absl::Duration timeout = absl::ZeroDuration();
};

// Follows a job until it ends or is paused, and draws its progress. `timeout` zero = none. Returns
// an ExitCode; Ctrl-C detaches, says how to re-attach and returns kExitOk.
absl::StatusOr<int> FollowJob(Context& context, const FollowOptions& options);

}  // namespace hearth::jobctl
