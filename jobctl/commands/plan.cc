#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/facts/complete_spec.h"
#include "common/io/env.h"
#include "common/spec/fields/idle.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/model/presets.h"
#include "common/spec/plan/gpus.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/plan/plan_report.h"
#include "common/spec/resolve.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_actions.h"

namespace hearth::jobctl {
namespace {

struct Options {
  std::string file;
  std::vector<std::string> assignments;
  std::string memory;
  int threads = 1;
  bool verbose = false;
  bool presets = false;
};

// Presets without a vocabulary of their own take the dataset's; their row counts this many tokens.
constexpr int kOpenVocab = 4096;

absl::StatusOr<int> Presets() {
  Table table({"NAME", "PARAMETERS", "LAYERS", "HIDDEN", "WHAT"});
  for (const spec::Preset& preset : spec::Presets()) {
    v1::JobSpec job_spec;
    job_spec.mutable_model()->set_preset(std::string(preset.name));
    if (!preset.model.has_vocab()) {
      job_spec.mutable_model()->set_vocab(kOpenVocab);
    }
    std::vector<spec::FieldViolation> violations;  // of fields that a preset lacks: name, data
    spec::Resolve(job_spec, violations);
    HEARTH_ASSIGN_OR_RETURN(
        const spec::ModelShape shape,
        spec::ResolveModelShape(job_spec.model(), job_spec.data().sequence_length()));
    table.Add(
        {std::string(preset.name), FormatCount(static_cast<double>(spec::CountParameters(shape))),
         absl::StrCat(shape.layers), absl::StrCat(shape.hidden), std::string(preset.comment)});
  }
  WriteOut(table.Render(FitColumns()));
  return kExitOk;
}

absl::StatusOr<int> Run(const Options& options) {
  if (options.presets) {
    return Presets();
  }
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec job_spec, LoadJobFile(options.file, options.assignments));
  std::vector<spec::FieldViolation> violations;
  spec::CheckIdleKeys(job_spec, violations);
  spec::Resolve(job_spec, violations);
  HEARTH_RETURN_IF_ERROR(spec::ViolationsToStatus(violations));
  HEARTH_RETURN_IF_ERROR(facts::CompleteForPlan(job_spec, Env::Real()));
  spec::PlanQuery query;
  query.threads = options.threads;
  query.verbose = options.verbose;
  if (!options.memory.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t memory, ParseBytes(options.memory));
    query.plan_bytes = spec::PlannableBytes(job_spec.resources().device(), memory,
                                            std::max(1, job_spec.resources().workers()));
  } else if (job_spec.batch().micro_batch_size() == 0) {
    return absl::InvalidArgumentError(
        "batch.micro_batch_size is auto: give a worker's memory with --memory, e.g. --memory "
        "32GiB");
  }
  HEARTH_ASSIGN_OR_RETURN(const spec::PlanReport report, spec::ReportPlan(job_spec, query));
  WriteOut(report.text);
  HEARTH_RETURN_IF_ERROR(report.fits);
  return kExitOk;
}

}  // namespace

Action SetupPlan(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::Option* file =
      app.add_option("-f,--file,file", options->file, "Job file (YAML), - for standard input");
  app.add_option("--set", options->assignments, "Override a field: path=value, repeatable")
      ->allow_extra_args(false);
  app.add_option(
      "--memory", options->memory,
      "Memory of a worker's device, e.g. 32GiB: does the job fit, and micro_batch_size: auto");
  app.add_option("--threads", options->threads, "CPU threads per rank")->check(CLI::PositiveNumber);
  app.add_flag("--verbose", options->verbose, "A line per buffer");
  CLI::Option* presets =
      app.add_flag("--presets", options->presets, "List the model presets instead");
  file->excludes(presets);
  return [options](Context&) -> absl::StatusOr<int> {
    if (!options->presets && options->file.empty()) {
      return absl::InvalidArgumentError("give a job file, or --presets");
    }
    return Run(*options);
  };
}

}  // namespace hearth::jobctl
