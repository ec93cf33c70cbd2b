#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/follow.h"
#include "jobctl/commands/jobs/job_labels.h"
#include "jobctl/commands/jobs/watch_jobs.h"
#include "jobctl/views/output.h"

namespace hearth::jobctl {
namespace {

constexpr int kPage = 1000;
constexpr absl::Duration kRedraw = absl::Milliseconds(250);

struct Options {
  std::vector<std::string> job_ids;
  std::vector<std::string> labels;
  bool exit_status = false;
  std::string timeout;
};

// The ids given, then those of the jobs with these labels that are under way, oldest first; each
// once.
absl::StatusOr<std::vector<std::string>> JobsOf(Client& client, const Options& options) {
  std::vector<std::string> labelled;
  v1::ListJobsRequest request;
  request.set_filter(LabelFilter(options.labels));
  request.set_page_size(kPage);
  while (!options.labels.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const v1::ListJobsResponse page,
                            client.Call<v1::ListJobsResponse>(request));
    for (const v1::Job& job : page.jobs()) {
      if (!Rests(job.state())) {
        labelled.push_back(job.job_id());
      }
    }
    request.set_page_token(page.next_page_token());
    if (request.page_token().empty()) {
      break;
    }
  }
  std::vector<std::string> ids = options.job_ids;
  ids.insert(ids.end(), labelled.rbegin(), labelled.rend());  // the newest come first
  std::vector<std::string> once;
  for (const std::string& id : ids) {
    if (std::find(once.begin(), once.end(), id) == once.end()) {
      once.push_back(id);
    }
  }
  return once;
}

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

absl::StatusOr<int> Run(Context& context, const Options& options) {
  if (options.job_ids.empty() && options.labels.empty()) {
    WriteErr("error: watch needs a job, or -l with a label\n");
    return kExitUsage;
  }
  HEARTH_ASSIGN_OR_RETURN(const absl::Duration timeout, ParseTimeout(options.timeout, "--timeout"));
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> ids, JobsOf(*client, options));
  if (ids.empty()) {
    WriteErr(absl::StrCat("no job with the label ", absl::StrJoin(options.labels, " and "),
                          " is under way; jobctl list -l shows those that have ended\n"));
    return kExitOk;
  }
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
  app.add_option("job", options->job_ids, "Job ids, or unambiguous beginnings of ids");
  AddLabels(app, options->labels, "Also the jobs with this label that are under way");
  app.add_flag("--exit-status", options->exit_status, "Exit as `wait` does");
  app.add_option("--timeout", options->timeout, "Give up after this time, e.g. 10m");
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
