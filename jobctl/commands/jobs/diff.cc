// How two jobs differ: their job files with all defaults.
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/views/spec_difference.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

struct Options {
  std::string job;
  std::string other;
};

absl::StatusOr<v1::Job> Get(Client& client, const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return client.Call<v1::Job>(request);
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  HEARTH_ASSIGN_OR_RETURN(const v1::Job job, Get(*client, options.job));
  HEARTH_ASSIGN_OR_RETURN(const v1::Job other, Get(*client, options.other));
  const std::vector<KeyDifference> differences = SpecDifferences(job.spec(), other.spec());
  if (context.format == OutputFormat::kJson) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const KeyDifference& row : differences) {
      rows.push_back({{"key", row.path}, {job.job_id(), row.a}, {other.job_id(), row.b}});
    }
    WriteOut(rows.dump(2) + "\n");
    return kExitOk;
  }
  if (differences.empty()) {
    WriteErr("the job files are the same\n");
    return kExitOk;
  }
  Table table({"KEY", job.job_id(), other.job_id()});
  for (const KeyDifference& row : differences) {
    table.Add({row.path, row.a, row.b});
  }
  WriteOut(table.Render(FitColumns()));
  return kExitOk;
}

}  // namespace

Action SetupDiff(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("job", options->job, "Job id")->required();
  app.add_option("other", options->other, "Id of the job to compare with")->required();
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
