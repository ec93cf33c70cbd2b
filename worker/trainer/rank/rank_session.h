// The engine and the trainer of a rank: those of a trial's runs, one after another, and then the
// job's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/rank/job_data.h"
#include "worker/trainer/rank/meeting.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/session.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// Owns engine and trainer; at most one of each at a time. For the step thread only. All ranks open
// and close together.
class RankSession {
 public:
  enum class Purpose : uint8_t { kTrial, kJob };

  // All but the string outlive it. `dump_gradients`: RankOptions, for the job's own steps.
  RankSession(RankContext& rank, Meeting& meeting, JobData& data, std::string dump_gradients);

  // Opens them for `spec`, with what rank.agreed says; once more without block-scaled matrix units
  // if a product fails on them. The ranks have met, and nothing is open. `resumed`: as in
  // SessionOptions. Errors: those of OpenSession; sets rank.blame.
  absl::Status Open(const v1::JobSpec& spec, Purpose purpose, LoadedCheckpoint* resumed);
  // Frees both; several GPUs meet again. Errors: those of Part() and Meeting::Meet.
  absl::Status Close();

  // Whether something binds the ranks of several GPUs to one another.
  bool Bound() const;
  // Ends what binds them, and the trainer. The ranks have met. Errors: the collective's.
  absl::Status Part();

  // After Open().
  Engine& engine() const { return *engine_; }
  Trainer& trainer() const { return *trainer_; }
  // The last step of the job that is done; 0 while there is none, as in a trial.
  int64_t JobStep() const;

 private:
  absl::Status OpenOnce(const v1::JobSpec& spec, LoadedCheckpoint* resumed);
  absl::Status OpenWithoutNativeBlocks(SessionOptions& options, const absl::Status& refused);

  RankContext& rank_;
  Meeting& meeting_;
  JobData& data_;
  const std::string dump_gradients_;
  Purpose purpose_ = Purpose::kJob;  // of the last Open()
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace hearth::trainer
