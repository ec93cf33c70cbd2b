// Runs of precision.trial, and its place in checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/spec/plan/shard_levels.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// What the losses of a trial depend on, as a digest: all of `job` but what only says where it runs,
// is kept and is called. `job` is complete.
std::string TrialMadeWith(const v1::JobSpec& job,
                          int world_size,
                          spec::ShardLevel shard,
                          int64_t micro_batch);

struct TrialRunOptions {
  int64_t steps = 0;
  bool evaluates = false;  // held-out loss after the last step
  std::string recipe;      // for the log
  Link* link = nullptr;    // null: nothing is logged (ranks above 0)
  std::function<ControlRequests()> take_control;
};

struct TrialRunResult {
  v1::PrecisionTrialRun run;  // without recipe and gap
  ControlRequests asked;      // by any rank
  // A pause or a stop was among it, and the run is not over.
  bool left = false;
};

// The first steps of a job, on a new trainer: with its guard, its fallbacks and its remedies, but
// without reports and checkpoints. A step that the guard stops at and a move to a fallback recipe
// end the run, and are its problem. All ranks call it together. Errors: of steps and evaluation.
absl::StatusOr<TrialRunResult> RunTrial(Trainer& trainer, const TrialRunOptions& options);

// As a checkpoint keeps it, and back; empty: the checkpoint has none. Fields that a later version
// wrote are passed over. kDataLoss: there is one, but it cannot be read.
std::string TrialToJson(const v1::PrecisionTrial& trial);
absl::StatusOr<std::optional<v1::PrecisionTrial>> TrialOf(const CheckpointMeta& meta);

}  // namespace hearth::trainer
