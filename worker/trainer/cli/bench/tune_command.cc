// `tune`: the fastest algorithm for every matrix product of some jobs, for plans.txt or for a file
// that is shipped.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "worker/trainer/cli/job/prepared_job.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {
namespace {

// Plans of a text of them, which begins with a header.
int64_t PlansIn(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n') - 1;
}

// Prints a line of what was tuned.
absl::Status TuneJob(const TuneOptions& options,
                     const TunedPlanPaths& plans,
                     const std::string& file) {
  PrepareOptions prepare;
  prepare.job = {file, options.overrides};
  prepare.device = options.device;
  prepare.threads = options.threads;
  prepare.plans = plans;
  PreparedJob job;
  HEARTH_RETURN_IF_ERROR(PrepareJob(prepare, job));
  if (job.cuda == nullptr) {
    return absl::InvalidArgumentError(
        "resources.device is cpu: only a GPU's products are tuned; say --device cuda:0");
  }
  absl::PrintF("%s: micro-batch %d x %d, deterministic %d, %d plans in the file\n", job.spec.name(),
               job.batch.micro_batch, job.batch.sequence_length, job.cuda->options().deterministic,
               PlansIn(job.cuda->ExportPlans()));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Tune(const TuneOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(TunedPlanPaths plans, FindTunedPlanPaths());
  plans.shipped.clear();
  plans.tuning_seconds = std::numeric_limits<double>::infinity();
  if (!options.output.empty()) {
    plans.own = options.output;
  }
  if (plans.own.empty()) {
    return absl::InvalidArgumentError("neither --output nor HEARTH_HOME nor HOME names a file");
  }
  size_t failed = 0;
  for (const std::string& file : options.jobs) {
    const absl::Status tuned = TuneJob(options, plans, file);
    if (!tuned.ok()) {
      ++failed;
      absl::FPrintF(stderr, "tune: %s: %s\n", file, tuned.message());
    }
  }
  if (failed > 0) {
    return absl::FailedPreconditionError(absl::StrCat(failed, " of ", options.jobs.size(),
                                                      " jobs were not tuned; plans of the ",
                                                      "others are in ", plans.own));
  }
  absl::PrintF("%s\n", plans.own);
  return absl::OkStatus();
}

}  // namespace

int TuneCommand(const TuneOptions& options) {
  return ExitCodeOf(Tune(options));
}

}  // namespace hearth::trainer
