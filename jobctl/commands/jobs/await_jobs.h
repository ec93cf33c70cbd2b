// Following the states of several jobs until all of them rest.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "jobctl/client/client.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {

// Shows what AwaitJobs hears. Called by its thread alone, without a lock.
class JobsView {
 public:
  virtual ~JobsView() = default;

  // After something was heard. `jobs`: as last heard, in the order asked for; one that nothing was
  // heard of has only its id. `messages`: lines about the connection, for standard error. `over`:
  // nothing more will come.
  virtual void Show(const std::vector<v1::Job>& jobs,
                    const std::vector<std::string>& messages,
                    bool over) = 0;
};

struct Awaited {
  // The worst ExitCode: kExitJobFailed, else kExitTimedOut, else kExitJobCancelled, else kExitOk.
  int code = kExitOk;
  bool timed_out = false;  // at least one job did not rest in time
};

struct AwaitOptions {
  std::string command;                          // that says how to follow the jobs again
  absl::Duration timeout;                       // zero = none
  absl::Duration every = absl::ZeroDuration();  // Show is called at most this often
};

// Waits until all of the jobs have ended or are paused, and shows them. An error of one ends the
// wait and is the result: kNotFound when there is no such job, or it was deleted. When the time is
// up it says on standard error which jobs are still under way. Ctrl-C detaches, says how to go on
// and returns kExitOk. `client` opens no streams afterwards. Errors are shown after the last Show.
absl::StatusOr<Awaited> AwaitJobs(Client& client,
                                  const std::vector<std::string>& job_ids,
                                  const AwaitOptions& options,
                                  JobsView& view);

}  // namespace hearth::jobctl
