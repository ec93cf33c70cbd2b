// `jobctl rerun`: submits jobs again as new ones.
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_file/load_job_file.h"
#include "jobctl/commands/jobs/job_actions.h"
#include "jobctl/commands/jobs/start_options.h"

namespace hearth::jobctl {
namespace {

struct Options {
  JobChoice choice;
  StartOptions start;
  std::vector<std::string> assignments;
  std::string job_id;
  std::string request_id;
};

absl::Status RunAgain(Context& context,
                      Client& client,
                      const Options& options,
                      const std::string& job_id) {
  v1::GetJobRequest get;
  get.set_job_id(job_id);
  HEARTH_ASSIGN_OR_RETURN(const v1::Job old, client.Call<v1::Job>(get));
  v1::CreateJobRequest request;
  *request.mutable_spec() = old.spec();
  // The new job does not wait for what the old one waited for.
  request.mutable_spec()->clear_start();
  HEARTH_RETURN_IF_ERROR(ChangeStoredSpec(options.assignments, *request.mutable_spec()));
  HEARTH_RETURN_IF_ERROR(TakeStart(options.start, *request.mutable_spec()));
  request.set_job_id(options.job_id);
  HEARTH_ASSIGN_OR_RETURN(const v1::Job job, CallWithId(client, options.request_id, request));
  for (const std::string& warning : job.warnings()) {
    WriteErr(absl::StrCat("warning: ", warning, "\n"));
  }
  return PrintMutation(context.format, context.quiet, absl::StrCat("job/", job.job_id()),
                       "submitted", job);
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  if (options.choice.several() && !(options.job_id.empty() && options.request_id.empty())) {
    WriteErr("error: --job-id and --request-id are for one job\n");
    return kExitUsage;
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  const auto run_again = [&](const std::string& job_id) {
    return RunAgain(context, *client, options, job_id);
  };
  return ForChosenJobs(context, options.choice, [&](const std::vector<std::string>& job_ids) {
    return ForEach("job", job_ids, run_again);
  });
}

}  // namespace

Action SetupRerun(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddJobsToChange(app, options->choice, Labelled::kAll, "Submit again");
  app.add_option("--set", options->assignments,
                 "Override a field: path=value, repeatable; null restores the default")
      ->allow_extra_args(false);
  AddStartOptions(app, options->start);
  app.add_option("--job-id", options->job_id, "Id of the new job (default: made from its name)");
  AddRequestId(app, options->request_id);
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
