// What ranks must have alike before they train.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/plan/batch.h"
#include "common/spec/plan/shard_levels.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/comm/collective.h"

namespace hearth::trainer {

struct AgreementParts {
  // The job in every recipe in which it may have to run: more than one before a trial has decided,
  // and after it, so that the batch does not depend on the moment. Complete; at least one.
  std::vector<v1::JobSpec> forms;
  const v1::Task* task = nullptr;
  Collective* comm = nullptr;
  int64_t plan_bytes = 0;                     // memory of this rank to plan with
  int64_t whole_bytes = 0;                    // ... if nobody else used its device; >= plan_bytes
  const LoadedCheckpoint* resumed = nullptr;  // null: from the beginning
};

// What the ranks agreed on.
struct Agreed {
  spec::ShardLevel shard = spec::ShardLevel::kOff;  // what the ranks divide
  int64_t micro_batch = 0;                          // sequences
  spec::BatchPlan batch;

  // Among which masters and optimizer state are divided.
  int shards() const { return spec::ShardsOf(shard, static_cast<int>(batch.world_size)); }
};

// What the ranks divide: as much as any rank, in any form of the job, needs. `blame` is set to who
// is to blame for an error.
absl::StatusOr<spec::ShardLevel> AgreeOnShardLevel(const AgreementParts& parts,
                                                   v1::ExitReason& blame);

// The micro-batch size that all ranks have memory for, in every form of the job.
absl::StatusOr<int64_t> AgreeOnMicroBatch(const AgreementParts& parts,
                                          spec::ShardLevel shard,
                                          v1::ExitReason& blame);

// Whether all ranks have the same value: kDataLoss "<what>: 3 and 5" if not. Errors: the
// collective's.
absl::Status CheckSame(Collective& comm, std::string_view what, int64_t value);

}  // namespace hearth::trainer
