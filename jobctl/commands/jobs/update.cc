#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"

namespace hearth::jobctl {

namespace {

struct Options {
  std::vector<std::string> job_ids;
  v1::UpdateJobRequest request;
  std::vector<std::string> labels;
};

}  // namespace

Action SetupUpdate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddJobs(app, options->job_ids);
  app.add_option_function<int>(
      "--priority", [options](int value) { options->request.set_priority(value); },
      "Higher runs first, -1000..1000");
  app.add_option("--label", options->labels, "key=value, repeatable; an empty value removes it")
      ->allow_extra_args(false);
  app.add_option_function<std::string>(
      "--etag", [options](const std::string& etag) { options->request.set_etag(etag); },
      "Fail if the job has changed since this etag (one job)");
  return [options](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(const auto labels, ParsePairs(options->labels, "--label"));
    if (labels.empty() && !options->request.has_priority()) {
      return absl::InvalidArgumentError("nothing to update: give --priority or --label");
    }
    if (!options->request.etag().empty() && options->job_ids.size() > 1) {
      return absl::InvalidArgumentError("--etag is for one job");
    }
    for (const auto& [key, value] : labels) {
      (*options->request.mutable_labels())[key] = value;
    }
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    return ForEach("job", options->job_ids, [&](const std::string& job_id) -> absl::Status {
      options->request.set_job_id(job_id);
      HEARTH_ASSIGN_OR_RETURN(const v1::Job job, client->Call<v1::Job>(options->request));
      return PrintMutation(context.format, context.quiet, absl::StrCat("job/", job.job_id()),
                           "updated", job);
    });
  };
}

}  // namespace hearth::jobctl
