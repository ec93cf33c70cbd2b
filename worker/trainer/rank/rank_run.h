// The order of a rank's life (rank.h). prepare.cc: up to the first step; rank_run.cc: the steps and
// the end. What is done at each stage is in the parts.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/rank/checkpoint/checkpoint_duty.h"
#include "worker/trainer/rank/checkpoint/state.h"
#include "worker/trainer/rank/controls.h"
#include "worker/trainer/rank/evaluation/evaluation_duty.h"
#include "worker/trainer/rank/job_data.h"
#include "worker/trainer/rank/meeting.h"
#include "worker/trainer/rank/rank.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/rank_session.h"
#include "worker/trainer/rank/reporter.h"
#include "worker/trainer/rank/trial/trial_duty.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// Owns the parts; each uses only parts that are declared before it. For one thread, the step
// thread, and for one run.
class RankRun {
 public:
  explicit RankRun(const RankOptions& options)
      : rank_(options),
        controls_(*options.link, options.signals),
        data_(rank_, options.verified_folder),
        session_(rank_, meeting_, data_, options.dump_gradients),
        trial_(rank_, meeting_, data_, session_, controls_),
        checkpoints_(
            rank_, meeting_, session_, options.prune_checkpoints, [this] { return Identity(); }),
        reporter_(rank_, meeting_, data_, session_) {}

  v1::TrainerExit Run();
  // After Run(): kernels of a communicator may wait for peers for ever, and so would whoever frees
  // the GPU's memory. The end of the process is the way out.
  bool broken() const { return broken_; }

 private:
  absl::Status Prepare();
  absl::Status OpenCheckpoint();
  absl::Status OpenDevice();
  // Fills rank_.agreed. The ranks have met.
  absl::Status Agree();
  void KeepGlobalBatch();
  absl::StatusOr<int64_t> PlanBytes() const;
  absl::Status CheckSameStart();

  absl::Status Train();
  // Launches a step or collects one, and does what follows from it. Sets left_ when a stop or a
  // pause ends the run.
  absl::Status OneStep();
  // Whether something looks at the weights after `step` before the next may be launched.
  bool Pauses(int64_t step) const;
  // What follows from a good step with nothing in flight: the run ends, or a checkpoint begins.
  absl::Status Act(StepResult& result);
  // What a checkpoint says of the run that writes it.
  RunIdentity Identity() const;

  // Destroyed from the last to the first: the GPU, which rank_ owns, goes last.
  RankContext rank_;
  Controls controls_;
  Meeting meeting_{rank_};
  JobData data_;
  EvaluationDuty evaluations_{rank_};
  std::optional<LoadedCheckpoint> resumed_;  // empty: from the beginning
  RankSession session_;
  TrialDuty trial_;
  CheckpointDuty checkpoints_;
  Reporter reporter_;
  std::optional<v1::ExitReason> left_;  // a stop or a pause ends the run
  bool broken_ = false;
};

// What tasks that train run: RunRank.
v1::TrainerExit RunTraining(const RankOptions& options);

}  // namespace hearth::trainer
