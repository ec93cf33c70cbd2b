// How two jobs differ: their job files with all defaults.
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/spec/fields/idle.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_file/load_job_file.h"
#include "jobctl/views/jobs/spec_difference.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

struct Options {
  std::string job;
  std::string other;
};

// Ids have neither dots nor slashes.
bool NamesFile(const std::string& text) {
  return text == "-" || text.find('/') != std::string::npos || absl::EndsWith(text, ".yaml") ||
         absl::EndsWith(text, ".yml") || absl::EndsWith(text, ".json");
}

// The job file of a job, or of a file, with all defaults.
absl::StatusOr<v1::JobSpec> SpecOf(Context& context, const std::string& name) {
  if (NamesFile(name)) {
    HEARTH_ASSIGN_OR_RETURN(v1::JobSpec spec, LoadJobFile(name, {}));
    const absl::Status resolved = spec::ResolveSubmitted(spec);
    return resolved.ok() ? absl::StatusOr<v1::JobSpec>(spec) : Annotate(resolved, name);
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::GetJobRequest request;
  request.set_job_id(name);
  HEARTH_ASSIGN_OR_RETURN(const v1::Job job, client->Call<v1::Job>(request));
  return job.spec();
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec spec, SpecOf(context, options.job));
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec other, SpecOf(context, options.other));
  const std::vector<KeyDifference> differences = SpecDifferences(spec, other);
  if (context.format == OutputFormat::kJson || context.format == OutputFormat::kYaml) {
    const auto rows = DifferencesJson(options.job, options.other, differences);
    WriteOut(context.format == OutputFormat::kJson ? rows.dump(2) + "\n" : ToYaml(rows));
    return kExitOk;
  }
  if (differences.empty()) {
    WriteErr("the job files are the same\n");
    return kExitOk;
  }
  WriteOut(RenderDifferences(options.job, options.other, differences,
                             context.format == OutputFormat::kWide ? 0 : FitColumns()));
  return kExitOk;
}

}  // namespace

Action SetupDiff(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("job", options->job, "Job id, or a job file: NAME.yaml, a path, or -")->required();
  app.add_option("other", options->other, "Job id or job file to compare with")->required();
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
