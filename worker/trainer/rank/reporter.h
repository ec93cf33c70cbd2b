// What a rank tells its worker about the run: how it begins, each step, what the guard decided.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/guard/ladder.h"
#include "worker/trainer/rank/job_data.h"
#include "worker/trainer/rank/meeting.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/rank_session.h"
#include "worker/trainer/step/recent_times.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// Owns what a report needs of the steps before it. Only rank 0 reports; the other ranks send their
// progress. For the step thread only.
class Reporter {
 public:
  // All outlive it. The time to the first step counts from here.
  Reporter(RankContext& rank, Meeting& meeting, JobData& data, RankSession& session);

  // The session is open, as for all below but AddDecisions. For rank 0: says so when the run,
  // resumed from this checkpoint, cannot repeat the bits of the run before.
  void WarnIfNotExact(const CheckpointMeta& meta);
  // For rank 0: what the job is and runs in.
  void Announce();

  // Logs what was decided and keeps it for the next report.
  void NoteDecisions(std::vector<Decision>& decisions);
  // After each good step; says how long the first one of a resumed run took.
  void NoteStep(int64_t step, bool resumed);
  // The report of a good step. `validation_loss`: empty = not measured after it.
  void Report(const StepResult& result,
              std::optional<double> validation_loss,
              int64_t skipped_checkpoints);
  // The decisions that no report has told.
  void AddDecisions(v1::TrainerExit& exit) const;

 private:
  // Bytes in use: of the machine by this process, or of the GPU.
  int64_t MemoryInUse();
  // Name of what a step ran in.
  std::string_view RecipeOf(const spec::StepFormat& format) const;

  RankContext& rank_;
  Meeting& meeting_;
  JobData& data_;
  RankSession& session_;
  const absl::Duration started_;
  bool stepped_ = false;
  absl::Duration resume_time_;  // from started_ to the end of the first step; 0 = not resumed
  absl::Duration last_progress_ = -absl::InfiniteDuration();
  RecentTimes compute_times_;
  int64_t memory_asked_ = 0;
  int64_t memory_in_use_ = 0;
  double flops_per_token_ = 0;
  double peak_flops_ = 0;            // dense BF16 of the GPU; 0 = not known
  std::vector<Decision> decisions_;  // not reported yet
};

}  // namespace hearth::trainer
