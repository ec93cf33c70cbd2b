// The data of a job on one rank, and the check that its files are what was recorded (data.verify).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/io/verified_files.h"
#include "worker/trainer/data/background_check.h"
#include "worker/trainer/data/loader.h"
#include "worker/trainer/rank/rank_context.h"

namespace hearth::trainer {

// Owns the loaders and the thread of the check. For the step thread only. AwaitCheck and Damage set
// rank.blame. Errors: those of OpenLoader and of FileVerifier::Verify.
class JobData {
 public:
  // `rank` outlives it. `verified_folder`: RankOptions.
  JobData(RankContext& rank, std::string verified_folder);

  // The model is read right away, so its files are verified first.
  absl::Status VerifyModel();
  // Opens the data of the complete job.
  absl::Status Open();
  // Begins to verify the files of the data, on a thread of its own.
  void StartCheck();
  // Waits a few seconds for the check. If it takes longer, training begins meanwhile.
  absl::Status AwaitCheck();
  // What the check has found so far.
  absl::Status Damage();
  // The training is over: says so if the check is not.
  void NoteUnverified();

  // After Open().
  Loader& train() const { return *train_; }
  Loader* validation() const { return validation_.get(); }  // null: the job has no held-out data
  std::string tokenizer_folder() const;                     // as TokenizerFolder

 private:
  FileVerifier Verifier() const;

  RankContext& rank_;
  const std::string verified_folder_;
  std::unique_ptr<Loader> train_;
  std::unique_ptr<Loader> validation_;
  std::unique_ptr<BackgroundCheck> check_;  // null: nothing is to be verified
};

}  // namespace hearth::trainer
