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

// `job_spec` is resolved, vocabulary included; `micro_batch` >= 1 sequences; `shards` 1 or
// `world_size` (ResolveShards). kInvalidArgument, kUnimplemented: a spec that this version cannot
// run; the text starts with the field.
absl::StatusOr<std::unique_ptr<PlanInputs>> MakePlanInputs(const v1::JobSpec& job_spec,
                                                           int64_t micro_batch,
                                                           int threads,
                                                           bool training,
                                                           int world_size = 1,
                                                           int shards = 1);

// Among how many ranks a run divides masters and optimizer state: 1 or `world_size`.
// parallel.shard_optimizer off: 1; on: all; auto: all only if the run would not fit into
// `memory_bytes` otherwise and does so. `micro_batch` 0: to be chosen (ResolveMicroBatch). Ranks
// with different memory must agree on the largest answer.
absl::StatusOr<int> ResolveShards(const v1::JobSpec& job_spec,
                                  int world_size,
                                  int threads,
                                  int64_t memory_bytes,
                                  int64_t micro_batch);

// The micro-batch size of a run: the given one, or for `auto` the largest that fits into
// `memory_bytes` and divides the global batch. kResourceExhausted as ChooseMicroBatch.
absl::StatusOr<int64_t> ResolveMicroBatch(
    const v1::JobSpec& job_spec, int world_size, int threads, int64_t memory_bytes, int shards = 1);

// A line for people: whether optimizer state is divided, and what a rank needs with and without.
// Empty for one rank.
absl::StatusOr<std::string> DescribeSharding(
    const v1::JobSpec& job_spec, int world_size, int threads, int64_t micro_batch, int shards);

// The global batch with its default (micro-batch * sequence length * workers) filled in.
absl::StatusOr<BatchPlan> ResolveBatchPlan(const v1::JobSpec& job_spec,
                                           int64_t micro_batch,
                                           int world_size);

}  // namespace hearth::spec
