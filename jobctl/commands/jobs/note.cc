#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"

namespace hearth::jobctl {
namespace {

struct Options {
  std::string job;
  std::vector<std::string> others;
  std::vector<std::string> words;
  std::string request_id;
};

absl::StatusOr<int> Run(Context& context, const Options& options) {
  JobTargets targets;
  std::vector<std::string>& job_ids = targets.choice.job_ids;
  job_ids = {options.job};
  job_ids.insert(job_ids.end(), options.others.begin(), options.others.end());
  targets.request_id = options.request_id;
  v1::AddNoteRequest request;
  request.set_text(absl::StrJoin(options.words, " "));
  return ChangeJobs(context, targets, request, [](const v1::Job&) { return "noted"; });
}

}  // namespace

Action SetupNote(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("job", options->job, "Job id, or an unambiguous beginning of one")->required();
  app.add_option("text", options->words, "The note; several words need no quotes")->required();
  app.add_option("--job", options->others, "Also add it to this job; repeatable")
      ->allow_extra_args(false);
  AddRequestId(app, options->request_id);
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
