#include "jobctl/commands/jobs/wait.h"

#include <memory>
#include <set>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/await_jobs.h"
#include "jobctl/commands/jobs/job_choice.h"
#include "jobctl/views/jobs/progress.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

// Says how each job went, once.
class EndsView : public JobsView {
 public:
  void Show(const std::vector<v1::Job>& jobs,
            const std::vector<std::string>& messages,
            bool /*over*/) override {
    for (const std::string& message : messages) {
      WriteErr(absl::StrCat(message, "\n"));
    }
    for (const v1::Job& job : jobs) {
      if (Rests(job.state()) && said_.insert(job.job_id()).second) {
        WriteErr(absl::StrCat("job/", job.job_id(), " ", StateText(job), "\n"));
      }
    }
  }

 private:
  std::set<std::string> said_;
};

struct Options {
  JobChoice choice;
  std::string timeout;
};

}  // namespace

absl::StatusOr<int> WaitForJobs(Client& client,
                                const std::vector<std::string>& job_ids,
                                absl::Duration timeout) {
  EndsView view;
  const absl::StatusOr<Awaited> awaited =
      AwaitJobs(client, job_ids, {.command = "wait", .timeout = timeout}, view);
  if (absl::IsNotFound(awaited.status())) {
    WriteErr(absl::StrCat("error: ", awaited.status().message(), "\n"));
    return kExitNotFound;
  }
  return awaited.ok() ? absl::StatusOr<int>(awaited->code) : awaited.status();
}

absl::StatusOr<int> WaitForJobs(Context& context,
                                const std::vector<std::string>& job_ids,
                                absl::Duration timeout) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  return WaitForJobs(*client, job_ids, timeout);
}

Action SetupWait(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.footer(
      "Exit codes: 0 succeeded or paused, 100 failed, 101 timed out, 102 not found, 103 "
      "cancelled.\nWith several jobs the worst counts: 102 at once, else 100, 101, 103, 0.");
  AddJobChoice(app, options->choice, Labelled::kAll);
  app.add_option("--timeout", options->timeout, "Give up after this time, e.g. 10m");
  return [options](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(const absl::Duration timeout,
                            ParseTimeout(options->timeout, "--timeout"));
    return ForChosenJobs(context, options->choice, [&](const std::vector<std::string>& job_ids) {
      return WaitForJobs(context, job_ids, timeout);
    });
  };
}

}  // namespace hearth::jobctl
