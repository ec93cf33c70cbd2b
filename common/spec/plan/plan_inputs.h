// From a resolved job spec to the memory plan of one rank: what the trainer allocates, `plan`
// prints and submit checks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/batch.h"
#include "common/spec/plan/shard_levels.h"
#include "common/spec/plan/training_plan.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// The options of PlanTraining with the table they point at. Not movable.
struct PlanInputs {
  std::vector<Parameter> table;
  const OptimizerRow* optimizer = nullptr;  // whose states the table has
  TrainingPlanOptions options;

  PlanInputs() = default;
  PlanInputs(const PlanInputs&) = delete;
  PlanInputs& operator=(const PlanInputs&) = delete;
};

// `job_spec` is resolved, vocabulary included; `micro_batch` >= 1 sequences; `shard` as
// ResolveShardLevel gives it. kInvalidArgument, kUnimplemented: a spec that this version cannot
// run; the text starts with the field.
absl::StatusOr<std::unique_ptr<PlanInputs>> MakePlanInputs(const v1::JobSpec& job_spec,
                                                           int64_t micro_batch,
                                                           int threads,
                                                           bool training,
                                                           int world_size = 1,
                                                           ShardLevel shard = ShardLevel::kOff);

// What a run's ranks divide: the level of parallel.shard, or with auto the first with which it fits
// into `memory_bytes`; kOff if it does with none. `micro_batch` 0: to be chosen
// (ResolveMicroBatch). Ranks with different memory must agree on the highest answer.
absl::StatusOr<ShardLevel> ResolveShardLevel(const v1::JobSpec& job_spec,
                                             int world_size,
                                             int threads,
                                             int64_t memory_bytes,
                                             int64_t micro_batch);

// The micro-batch size of a run: the given one, or for `auto` the largest that fits into
// `memory_bytes` and divides the global batch. kResourceExhausted as ChooseMicroBatch.
absl::StatusOr<int64_t> ResolveMicroBatch(const v1::JobSpec& job_spec,
                                          int world_size,
                                          int threads,
                                          int64_t memory_bytes,
                                          ShardLevel shard = ShardLevel::kOff);

// A line for people: what the ranks divide, and what a rank needs at this level and the others.
// Empty for one rank.
absl::StatusOr<std::string> DescribeSharding(const v1::JobSpec& job_spec,
                                             int world_size,
                                             int threads,
                                             int64_t micro_batch,
                                             ShardLevel shard);

// The global batch with its default (micro-batch * sequence length * workers) filled in.
absl::StatusOr<BatchPlan> ResolveBatchPlan(const v1::JobSpec& job_spec,
                                           int64_t micro_batch,
                                           int world_size);

}  // namespace hearth::spec
