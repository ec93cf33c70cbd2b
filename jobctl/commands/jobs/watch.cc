#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/follow.h"
#include "jobctl/commands/jobs/job_choice.h"
#include "jobctl/commands/jobs/watch_jobs.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(250);

struct Options {
  JobChoice choice;
  bool exit_status = false;
  std::string timeout;
};

absl::StatusOr<int> WatchSeveral(Client& client,
                                 const std::vector<std::string>& job_ids,
                                 bool exit_status,
                                 absl::Duration timeout) {
  OnInterrupt([&client] { client.CancelStreams(); });
  WatchView view({[](const std::string& text) { WriteTerminal(text); },
                  [](const std::string& text) { WriteErr(text); },
                  IsTerminal() ? std::function<TerminalSize()>(SizeOfTerminal) : nullptr});
  const absl::StatusOr<Awaited> awaited =
      AwaitJobs(client, job_ids, {.command = "watch", .timeout = timeout, .every = kRedraw}, view);
  if (absl::IsNotFound(awaited.status()) && exit_status) {
    WriteErr(absl::StrCat("error: ", awaited.status().message(), "\n"));
    return kExitNotFound;
  }
  HEARTH_RETURN_IF_ERROR(awaited.status());
  return exit_status ? awaited->code : awaited->timed_out ? int{kExitTimedOut} : int{kExitOk};
}

absl::StatusOr<int> Run(Context& context,
                        const Options& options,
                        const std::vector<std::string>& ids) {
  HEARTH_ASSIGN_OR_RETURN(const absl::Duration timeout, ParseTimeout(options.timeout, "--timeout"));
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  if (ids.size() > 1) {
    return WatchSeveral(*client, ids, options.exit_status, timeout);
  }
  FollowOptions follow;
  follow.job_id = ids.front();
  follow.exit_status = options.exit_status;
  follow.timeout = timeout;
  return FollowJob(context, follow);
}

}  // namespace

Action SetupWatch(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.footer(
      "One job is shown in full, several as a table with a row for each.\n"
      "With --exit-status and several jobs the worst counts, as for `wait`.");
  AddJobChoice(app, options->choice, Labelled::kUnderWay);
  app.add_flag("--exit-status", options->exit_status, "Exit as `wait` does");
  app.add_option("--timeout", options->timeout, "Give up after this time, e.g. 10m");
  return [options](Context& context) {
    return ForChosenJobs(context, options->choice, [&](const std::vector<std::string>& job_ids) {
      return Run(context, *options, job_ids);
    });
  };
}

}  // namespace hearth::jobctl
