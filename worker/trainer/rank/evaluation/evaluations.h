// train.evaluations of a job on one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/time/clock.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/evaluate/evaluation.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// Not thread-safe.
class Evaluations {
 public:
  // Reads and encodes the items of all, with the tokenizer of dataset folder `tokenizer_from`.
  // Errors: those of OpenTokenizerIn and Evaluation::Open; kInvalidArgument: the job has
  // evaluations and its data no tokenizer.
  static absl::StatusOr<Evaluations> Open(const v1::JobSpec& spec,
                                          const std::string& tokenizer_from,
                                          Env& env);

  // Whether any is asked after `step`.
  bool Due(int64_t step) const;

  // Asks those that are due and adds their results to `report`. All ranks call it together, with
  // nothing in flight. Errors: those of Trainer::ScoreAll.
  absl::Status Ask(Trainer& trainer, int64_t step, Clock& clock, v1::StepReport& report) const;

 private:
  struct Asked {
    std::unique_ptr<Evaluation> evaluation;
    int64_t every = 0;  // 0 = only after the last step
  };

  bool IsDue(const Asked& asked, int64_t step) const {
    return step == last_step_ || (asked.every > 0 && step % asked.every == 0);
  }

  int64_t last_step_ = 0;
  std::vector<Asked> asked_;
};

}  // namespace hearth::trainer
