// What to change in a job that does not fit, and what each change saves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/memory/varied_plans.h"

namespace hearth::spec {

// What to judge: the job as it is where it fits, else the fastest of its variations that do.
struct Choice {
  Variation as_is;      // micro_batch >= 1
  Variation variation;  // as_is, where nothing fits
  bool fits = false;
  bool fits_gpu = false;             // whatever the host has
  std::vector<Change> changes;       // that `variation` needs
  std::vector<std::string> reasons;  // of the changes, or why nothing helps
};

// `device_bytes` is all memory of a GPU, `host_bytes` what its process may pin of the host's; 0 =
// not known: then offload is neither proposed nor refused.
absl::StatusOr<Choice> ChooseVariation(VariedPlans& plans,
                                       const GpuRow& gpu,
                                       const Calibration& calibration,
                                       int64_t device_bytes,
                                       int64_t host_bytes);

// A row for each level of recomputation.
absl::StatusOr<std::vector<LevelRow>> LevelsOf(VariedPlans& plans,
                                               const Variation& variation,
                                               const GpuRow& gpu,
                                               const Calibration& calibration,
                                               int64_t device_bytes);

// What each single change of the job as it is would save; a change that the job or the GPU cannot
// have, or that saves nothing, is left out.
absl::StatusOr<std::vector<Saving>> SavingsOf(VariedPlans& plans,
                                              const Variation& as_is,
                                              const GpuRow& gpu,
                                              const Calibration& calibration);

// What products of the plan's quantised layers run in on this GPU.
MatrixFormat FormatOnGpu(const GpuRow& gpu, const VariedPlan& plan);

// The time of a step on `gpus` GPUs.
StepTime TimeOfPlan(const VariedPlan& plan,
                    int gpus,
                    const GpuRow& gpu,
                    const Calibration& calibration);

}  // namespace hearth::spec
