// A rank's part in precision.trial: the runs before the first step, and the recipe that comes of
// them.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/guard/recipe_trial.h"
#include "worker/trainer/rank/controls.h"
#include "worker/trainer/rank/job_data.h"
#include "worker/trainer/rank/meeting.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/rank_session.h"
#include "worker/trainer/rank/trial/trial_run.h"

namespace hearth::trainer {

// Owns what is known of the trial. For the step thread only. Does nothing for a job without a
// trial.
class TrialDuty {
 public:
  // All outlive it.
  TrialDuty(
      RankContext& rank, Meeting& meeting, JobData& data, RankSession& session, Controls& controls);

  // Takes what earlier runs found, from the task or the checkpoint (null: the job begins). A job
  // that began without a trial gets none later. Errors: those of TrialOf.
  absl::Status Recall(const LoadedCheckpoint* resumed);
  // Runs what is left of the trial, on all ranks together, and gives rank.spec the recipe that was
  // chosen. The ranks have agreed; nothing is open, before and after. A reason: a stop or a pause
  // ended it, and the run ends with that. Errors: of steps, of the session and of CheckSame; sets
  // rank.blame.
  absl::StatusOr<std::optional<v1::ExitReason>> Choose();

  // The trial that decided for this job, as checkpoints keep it; empty: none did.
  std::string ChosenAsJson() const;

 private:
  absl::Status Hold(Trial& trial);
  absl::StatusOr<TrialRunResult> TryRecipe(const std::string& recipe);
  absl::Status TakeRun(const TrialRunResult& result, Trial& trial);

  RankContext& rank_;
  Meeting& meeting_;
  JobData& data_;
  RankSession& session_;
  Controls& controls_;
  v1::PrecisionTrial before_;                 // of earlier trainers of this job
  std::optional<v1::PrecisionTrial> chosen_;  // that decided for this job
  std::optional<v1::ExitReason> left_;        // a pause or a stop came
};

}  // namespace hearth::trainer
