// Memory plans of variations of one job, each made once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/feasibility/memory/state_choice.h"
#include "common/spec/plan/plan_inputs.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// A field that is not part of the StateChoice, as the job file writes it.
struct FieldSetting {
  std::string path;   // "weights.store"
  std::string value;  // "q4_0"

  auto operator<=>(const FieldSetting&) const = default;  // NOLINT(modernize-use-nullptr)
};

// What a plan may change of a job.
struct Variation {
  std::string recipe;
  std::string recompute;
  StateChoice kept;
  int64_t micro_batch = 1;
  ShardLevel shard = ShardLevel::kOff;
  HostClasses offload = {};
  std::vector<FieldSetting> settings = {};  // beside the job's own

  auto operator<=>(const Variation&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct VariedPlan {
  v1::JobSpec spec;
  std::unique_ptr<PlanInputs> job;
  TrainingPlan plan;
};

// What a rank may take.
struct Room {
  int64_t device = 0;  // of arena
  int64_t host = 0;    // of the host's memory, for plans that offload; 0 = not known

  bool Holds(const VariedPlan& plan) const {
    return plan.plan.arena_bytes() <= device && HoldsOnHost(plan);
  }
  bool HoldsOnHost(const VariedPlan& plan) const {
    return host <= 0 || !plan.job->options.offload.any() ||
           plan.plan.arena_bytes(MemoryTier::kPinnedHost) <= host;
  }
};

// Gives the job so many workers. resources.min_workers follows where it is as large, and is never
// larger. The job need not be resolved.
void SetWorkers(int workers, v1::JobSpec& job_spec);

class VariedPlans {
 public:
  // `gpus` ranks on "cuda".
  VariedPlans(v1::JobSpec job_spec, int gpus);

  // The job as it is. `micro_batch` 0 where the job leaves it open.
  Variation AsIs() const;
  // Lives as long as this. kInvalidArgument: the rules refuse a choice or a setting, or it changes
  // nothing in this job. Errors of MakePlanInputs and PlanTraining.
  absl::StatusOr<const VariedPlan*> Get(const Variation& variation);
  // Micro-batches that the job's global batch allows on these GPUs, the largest first; at most the
  // job's own, if it has one.
  const std::vector<int64_t>& candidates() const { return candidates_; }
  // The largest candidate that the room holds; 0 = none.
  absl::StatusOr<int64_t> LargestCandidate(Variation variation, const Room& room);
  // The largest of any size that takes at most `bytes` of arena. The same.
  absl::StatusOr<int64_t> Largest(const Variation& variation, int64_t bytes);
  // The levels of parallel.shard that the job allows with a choice, the preferred first.
  std::vector<ShardLevel> ShardLevels(const StateChoice& kept) const;
  // The one of them with which the variation takes the least: to bring a large embedding together
  // may take more than to keep the weights of few layers whole. Errors of Get.
  absl::StatusOr<ShardLevel> SmallestLevel(Variation variation);

  const v1::JobSpec& spec() const { return spec_; }
  int gpus() const { return gpus_; }

 private:
  // A choice, with settings, and then also a micro-batch.
  struct Formats {
    StateChoice kept;
    std::vector<FieldSetting> settings;
    int64_t micro_batch = 0;  // 0: the job's

    auto operator<=>(const Formats&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  v1::JobSpec SpecWith(const Formats& formats) const;
  absl::Status Check(const Formats& formats) const;
  const absl::Status& Allowed(const Variation& variation);
  absl::StatusOr<int64_t> Arena(Variation variation, int64_t micro_batch);

  v1::JobSpec spec_;
  const int gpus_;
  std::vector<int64_t> candidates_;
  std::map<Variation, VariedPlan> plans_;
  std::map<Formats, absl::Status> allowed_;  // what the rules say of each
};

}  // namespace hearth::spec
