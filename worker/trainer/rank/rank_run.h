// The parts of a rank's life (rank.h) share this. prepare.cc: up to the first step; rank_run.cc:
// the steps and the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/guard/ladder.h"
#include "worker/trainer/rank/checkpoint_duty.h"
#include "worker/trainer/rank/controls.h"
#include "worker/trainer/rank/evaluation_duty.h"
#include "worker/trainer/rank/job_data.h"
#include "worker/trainer/rank/meeting.h"
#include "worker/trainer/rank/rank.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/rank_session.h"
#include "worker/trainer/rank/state.h"
#include "worker/trainer/rank/trial_duty.h"
#include "worker/trainer/step/recent_times.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

class RankRun {
 public:
  explicit RankRun(const RankOptions& options)
      : rank_(options),
        controls_(*options.link, options.signals),
        started_(options.clock->Monotonic()),
        data_(rank_, options.verified_folder),
        session_(rank_, meeting_, data_, options.dump_gradients),
        trial_(rank_, meeting_, data_, session_, controls_),
        checkpoints_(
            rank_, meeting_, session_, options.prune_checkpoints, [this] { return Identity(); }) {}

  v1::TrainerExit Run();
  // After Run(): kernels of a communicator may wait for peers for ever, and so would whoever frees
  // the GPU's memory. The end of the process is the way out.
  bool broken() const { return broken_; }

 private:
  absl::Status Prepare();
  void KeepGlobalBatch();
  absl::Status Agree();
  absl::Status OpenCheckpoint();
  absl::Status OpenDevice();
  absl::StatusOr<int64_t> PlanBytes() const;
  absl::Status CheckSameStart();
  // Says so when a resume cannot repeat the bits of the run before.
  void WarnIfNotExact();
  void Announce();
  // Bytes in use: of the machine by this process, or of the GPU.
  int64_t MemoryInUse();

  absl::Status Train();
  // Launches a step or collects one, and does what follows from it. Sets done_ when the run is
  // over.
  absl::Status OneStep();
  // Whether something looks at the weights after `step` before the next may be launched.
  bool Pauses(int64_t step) const;
  // What follows from a good step with nothing in flight: the run ends, or a checkpoint begins.
  absl::Status Act(StepResult& result);
  // Logs what was decided and keeps it for the next report.
  void NoteDecisions(std::vector<Decision>& decisions);
  // Name of what a step ran in.
  std::string_view RecipeOf(const spec::StepFormat& format) const;
  void Report(const StepResult& result, std::optional<double> validation_loss);
  // Whose the weights are that a checkpoint is made of.
  RunIdentity Identity() const;
  // After the first step of a resumed run.
  void NoteResumed(int64_t step);

  RankContext rank_;
  Controls controls_;
  const absl::Duration started_;

  v1::ExitReason outcome_ = v1::EXIT_REASON_FINISHED;
  bool done_ = false;
  bool broken_ = false;
  bool stepped_ = false;
  absl::Duration resume_time_;  // from started_ to the end of the first step; 0 = not resumed
  absl::Duration last_progress_ = -absl::InfiniteDuration();
  RecentTimes compute_times_;

  int64_t memory_asked_ = 0;
  int64_t memory_free_ = 0;
  int64_t memory_in_use_ = 0;
  double flops_per_token_ = 0;
  double peak_flops_ = 0;            // dense BF16 of the GPU; 0 = not known
  std::vector<Decision> decisions_;  // not reported yet

  Meeting meeting_{rank_};
  JobData data_;
  EvaluationDuty evaluations_{rank_};
  std::optional<LoadedCheckpoint> resumed_;
  RankSession session_;
  TrialDuty trial_;
  CheckpointDuty checkpoints_;
};

}  // namespace hearth::trainer
