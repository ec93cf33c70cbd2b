// Which runs a comparison consists of: each recipe, in each setting of --vary, with each seed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/cli/compare/compare.h"

namespace hearth::trainer {

// Ordered by seed, then setting (in the order of its values), then recipe.
//   vary  : "field=value,value,..."; several are combined. A comma in brackets is part of a value
//   each  : the same syntax. In each setting of `vary` the job runs as it is, and once with each of
//           these values alone
//   seeds : how many, from the job's seed on; 0: the job's seed alone, and names do not show it
// If two settings give a recipe the same job, it runs once, in the first of them; if all settings
// do, its name shows none. The first recipe is the reference: a run is compared with the reference
// of its seed and setting.
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
