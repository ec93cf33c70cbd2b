// The checkpoints that a rank writes while it trains and when it leaves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/checkpoint/background_writer.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/rank/checkpoint/state.h"
#include "worker/trainer/rank/device_reader.h"
#include "worker/trainer/rank/meeting.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/rank_session.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// Rank 0 writes what all ranks have alike; with a divided optimizer each rank writes its own part.
// Ranks that write nothing call the same functions, which do nothing then. Owns the writer, whose
// thread reads snapshots, and the reader of a GPU. For the step thread only.
class CheckpointDuty {
 public:
  // All outlive it. `prune`: RankOptions::prune_checkpoints. `identity`: of this run and of the
  // weights as they are; called on the step thread.
  CheckpointDuty(RankContext& rank,
                 Meeting& meeting,
                 RankSession& session,
                 bool prune,
                 std::function<RunIdentity()> identity);

  // The session is open. Takes the memory for snapshots beside the first steps. Errors: those of
  // DeviceReader::New.
  absl::Status Start();
  // Begins a checkpoint of the weights after the step of `result` if one is due or was `asked` for,
  // and adds its time to the report. Nothing is in flight; all ranks call it after the same step.
  // Errors: of Trainer::TakeWholeWeights, of BackgroundWriter::Submit and of the collective; sets
  // rank.blame.
  absl::Status SaveIfDue(StepResult& result, bool asked);
  // Announces finished checkpoints. One that lacks a rank's part is only logged; on rank 0 the
  // kLackingMax-th in a row is an error. Errors: of the writer; sets rank.blame.
  absl::Status TakeFinished();
  // The run is over: saves its last step unless that is done or the run resumed from it
  // (`resumed_step`; empty: it did not resume), and waits until it is written, which must succeed.
  absl::Status Finish(std::optional<int64_t> resumed_step);

  int64_t committed_step() const { return committed_step_; }  // the newest announced; 0 = none
  int64_t skipped() const { return skipped_; }                // due while one was being written

 private:
  // What is to be written now.
  CheckpointContent Content();
  absl::Status Submit();
  // Whether the writers of all ranks can begin at once. With `needed` it waits until they can. All
  // ranks that write call it together.
  absl::StatusOr<bool> WritersReady(bool needed);
  // As TakeFinished; with `wait`, also the one under way, and the newest must be good.
  absl::Status Take(bool wait);
  void Announce(const CommittedCheckpoint& committed);

  RankContext& rank_;
  Meeting& meeting_;
  RankSession& session_;
  const bool prune_;
  const std::function<RunIdentity()> identity_;
  int64_t committed_step_ = 0;
  int64_t submitted_step_ = 0;
  int64_t skipped_ = 0;
  absl::Status newest_;                       // of those that are done
  static constexpr int kLackingMax = 3;       // checkpoints in a row without some part end a run
  int lacking_ = 0;                           // of those that are done, since the last good one
  std::unique_ptr<DeviceReader> reader_;      // null: the CPU
  std::unique_ptr<BackgroundWriter> writer_;  // null: others write for this rank
};

}  // namespace hearth::trainer
