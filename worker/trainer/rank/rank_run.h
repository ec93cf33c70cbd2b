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
#include "worker/trainer/checkpoint/background_writer.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/guard/ladder.h"
#include "worker/trainer/guard/recipe_trial.h"
#include "worker/trainer/rank/controls.h"
#include "worker/trainer/rank/device_reader.h"
#include "worker/trainer/rank/evaluation_duty.h"
#include "worker/trainer/rank/job_data.h"
#include "worker/trainer/rank/meeting.h"
#include "worker/trainer/rank/rank.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/rank_session.h"
#include "worker/trainer/rank/trial_run.h"
#include "worker/trainer/step/recent_times.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

class RankRun {
 public:
  explicit RankRun(const RankOptions& options)
      : rank_(options),
        controls_(*options.link, options.signals),
        prune_(options.prune_checkpoints),
        started_(options.clock->Monotonic()),
        data_(rank_, options.verified_folder),
        session_(rank_, meeting_, data_, options.dump_gradients) {}

  v1::TrainerExit Run();
  // After Run(): kernels of a communicator may wait for peers for ever, and so would whoever frees
  // the GPU's memory. The end of the process is the way out.
  bool broken() const { return broken_; }

 private:
  absl::Status Prepare();
  void KeepGlobalBatch();
  absl::Status Agree();
  absl::Status OpenCheckpoint();
  // What earlier runs of precision.trial found. A job that began without a trial gets none later.
  absl::Status RecallTrial();
  absl::Status OpenDevice();
  absl::StatusOr<int64_t> PlanBytes() const;
  absl::Status CheckSameStart();
  // Before the first step of a job with precision.trial: the job gets the recipe that the trial chose
  // or chooses here. Sets done_ when the run is over with it.
  absl::Status ChooseRecipe();
  absl::Status HoldTrial(Trial& trial);
  absl::StatusOr<TrialRunResult> TryRecipe(const std::string& recipe);
  absl::Status TakeTrialRun(const TrialRunResult& result, Trial& trial);
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
  // What is to be written now.
  CheckpointContent Content();
  absl::Status SubmitCheckpoint();
  // Whether the writers of all ranks can begin at once. With `needed` it waits until they can. All
  // ranks that write call it together.
  absl::StatusOr<bool> WritersReady(bool needed);
  // Takes the memory for snapshots beside the first steps.
  absl::Status StartWriter();
  // After the first step of a resumed run.
  void NoteResumed(int64_t step);
  // Announces finished checkpoints; with `wait`, also the one under way, which must succeed.
  // Without, one that lacks a rank's part is only logged, up to kLackingMax in a row.
  absl::Status TakeCheckpoints(bool wait);
  void AnnounceCheckpoint(const CommittedCheckpoint& committed);

  RankContext rank_;
  Controls controls_;
  const bool prune_;
  const absl::Duration started_;

  v1::ExitReason outcome_ = v1::EXIT_REASON_FINISHED;
  bool done_ = false;
  bool broken_ = false;
  int64_t committed_step_ = 0;
  int64_t submitted_step_ = 0;
  int64_t skipped_checkpoints_ = 0;
  bool stepped_ = false;
  absl::Duration resume_time_;      // from started_ to the end of the first step; 0 = not resumed
  absl::Status newest_checkpoint_;  // of those that are done
  static constexpr int kLackingMax = 3;  // checkpoints in a row without some part end a run
  int lacking_ = 0;                      // of those that are done, since the last good one
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
  v1::PrecisionTrial trial_before_;          // of earlier trainers of this job
  std::optional<v1::PrecisionTrial> trial_;  // that decided for this job
  RankSession session_;
  std::unique_ptr<DeviceReader> reader_;      // null: the CPU
  std::unique_ptr<BackgroundWriter> writer_;  // null: others write for this rank
};

}  // namespace hearth::trainer
