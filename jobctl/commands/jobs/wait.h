// Waiting until jobs end, for scripts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "jobctl/client/client.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {

// Waits until all of the jobs have ended or are paused, and says on standard error how each went as
// soon as it is known. `timeout` zero = none. Returns the worst ExitCode: kExitJobFailed, else
// kExitTimedOut, else kExitJobCancelled, else kExitOk. An error of one ends the wait: the result is
// kExitNotFound when there is no such job, else that error. Ctrl-C detaches, says how to wait again
// and returns kExitOk. `client` opens no streams afterwards.
absl::StatusOr<int> WaitForJobs(Client& client,
                                const std::vector<std::string>& job_ids,
                                absl::Duration timeout);
// The same, with the context's client and its Ctrl-C.
absl::StatusOr<int> WaitForJobs(Context& context,
                                const std::vector<std::string>& job_ids,
                                absl::Duration timeout);

}  // namespace hearth::jobctl
