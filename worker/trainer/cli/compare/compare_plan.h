// Which runs a comparison consists of: each recipe, in each setting of --vary, with each seed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/cli/compare/compare.h"

namespace hearth::trainer {

// Ordered by seed, then setting (in the order of its values), then recipe. `vary`:
// "field=value,value,...", several are combined; a comma in brackets is part of a value. `each`:
// the same, but each value is a setting of its own beside the job as it is, in each setting of
// `vary`. `seeds`: that many from the job's on, 0: one, and names do without it. A recipe in which
// two settings are the same job has it once, in the first of them, and without a name for it if all
// are. The first recipe is the reference; a run's is the one of the same seed, in the run's
// setting.
// Errors: kInvalidArgument (no field=value, a value that the field does not take, the recipe or the
// seed, which have options of their own).
absl::StatusOr<std::vector<ComparedRun>> PlanRuns(const v1::JobSpec& job,
                                                  const std::vector<std::string>& recipes,
                                                  const std::vector<std::string>& vary,
                                                  const std::vector<std::string>& each,
                                                  int seeds);

// The job as the run has it. `job`: what all runs have in common.
absl::StatusOr<v1::JobSpec> JobOf(const v1::JobSpec& job, const ComparedRun& run);

// Name of its folder: "nvfp4-bf16_tail=0.1-seed5".
std::string FolderOf(const ComparedRun& run);

}  // namespace hearth::trainer
