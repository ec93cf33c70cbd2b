// What a rank does with the model between steps: it measures the held-out loss (train.eval_every)
// and train.evaluations, and writes train.samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/rank/evaluation/evaluations.h"
#include "worker/trainer/rank/evaluation/samples.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// Owns the evaluations' items, the samples' prompts and the newest held-out loss. For the step
// thread only.
class EvaluationDuty {
 public:
  // `rank` outlives it.
  explicit EvaluationDuty(RankContext& rank) : rank_(rank) {}

  // `held_out`: the job has held-out data. `tokenizer_from`: Evaluations::Open and Samples::Open,
  // whose errors it returns.
  absl::Status Open(bool held_out, const std::string& tokenizer_from);

  // Whether something is measured after `step`.
  bool Due(int64_t step) const { return HeldOutDue(step) || evaluations_.Due(step); }

  // These measure what is due, on all ranks together and with nothing in flight. Errors: those of
  // Trainer::Evaluate and Trainer::ScoreAll; they set rank.blame.
  //
  // The held-out loss after `step`; empty: it is not due.
  absl::StatusOr<std::optional<double>> EvaluateIfDue(Trainer& trainer, int64_t step);
  // train.evaluations; results go to `report` and the log.
  absl::Status AskIfDue(Trainer& trainer, int64_t step, v1::StepReport& report);

  // train.samples, after a step at which something is measured: rank 0 writes them, and the others
  // wait. Errors: those of Trainer::OnRankZero; they set rank.blame. Texts that cannot be written
  // (memory) are a warning: training does not depend on them.
  absl::Status WriteSamplesIfDue(Trainer& trainer,
                                 const Engine& engine,
                                 int64_t step,
                                 v1::StepReport& report);

  // The held-out loss of the weights after `step`; 0: it was not measured.
  double LossOf(int64_t step) const { return validated_step_ == step ? validation_loss_ : 0; }

 private:
  bool HeldOutDue(int64_t step) const;

  RankContext& rank_;
  bool held_out_ = false;
  Evaluations evaluations_;
  Samples samples_;
  double validation_loss_ = 0;  // the last one measured, at validated_step_
  int64_t validated_step_ = 0;
};

}  // namespace hearth::trainer
