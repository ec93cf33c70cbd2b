#include "worker/trainer/rank/evaluation/evaluation_duty.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/spec/evaluation/evaluation_table.h"

namespace hearth::trainer {
namespace {

// The texts of one evaluation take at most this long. All ranks wait for them, and so does a pause
// that comes meanwhile: it needs time for the checkpoint within checkpoint.grace_seconds, 60 s by
// default.
constexpr absl::Duration kSamplesTime = absl::Seconds(40);

}  // namespace

absl::Status EvaluationDuty::Open(bool held_out, const std::string& tokenizer_from) {
  held_out_ = held_out;
  HEARTH_ASSIGN_OR_RETURN(evaluations_, Evaluations::Open(rank_.spec, tokenizer_from, rank_.env));
  HEARTH_ASSIGN_OR_RETURN(samples_, Samples::Open(rank_.spec, tokenizer_from, rank_.env));
  return absl::OkStatus();
}

// The first step too, so that a run shows where it began.
bool EvaluationDuty::HeldOutDue(int64_t step) const {
  return held_out_ && (step == 1 || rank_.Due(step, rank_.spec.train().eval_every()));
}

absl::StatusOr<std::optional<double>> EvaluationDuty::EvaluateIfDue(Trainer& trainer,
                                                                    int64_t step) {
  if (!HeldOutDue(step)) {
    return std::nullopt;
  }
  rank_.link.SendPhase("evaluating");
  absl::StatusOr<double> loss = trainer.Evaluate();
  if (!loss.ok()) {
    return rank_.Blame(loss.status());
  }
  validation_loss_ = *loss;
  validated_step_ = step;
  if (rank_.leader) {
    rank_.link.SendLog("info", absl::StrFormat("step %d: held-out loss %.4f", step, *loss));
  }
  rank_.link.SendPhase("training");
  return std::optional<double>(*loss);
}

absl::Status EvaluationDuty::AskIfDue(Trainer& trainer, int64_t step, v1::StepReport& report) {
  if (!evaluations_.Due(step)) {
    return absl::OkStatus();
  }
  rank_.link.SendPhase("evaluating");
  const absl::Status asked = evaluations_.Ask(trainer, step, rank_.clock, report);
  if (!asked.ok()) {
    return rank_.Blame(asked);
  }
  for (const v1::EvaluationResult& result : report.evaluations()) {
    if (rank_.leader) {
      rank_.link.SendLog("info", absl::StrCat("step ", step, ": ", spec::EvaluationText(result)));
    }
  }
  rank_.link.SendPhase("training");
  return absl::OkStatus();
}

absl::Status EvaluationDuty::WriteSamplesIfDue(Trainer& trainer,
                                               const Engine& engine,
                                               int64_t step,
                                               v1::StepReport& report) {
  if (samples_.empty() || !Due(step)) {
    return absl::OkStatus();
  }
  rank_.link.SendPhase("evaluating");
  Samples::WriteOptions options;
  options.engine = &engine;
  options.threads = std::max(1, rank_.task.threads());
  options.clock = &rank_.clock;
  const absl::Duration began = rank_.clock.Monotonic();
  options.at_pass = [this, began]() -> absl::Status {
    // A pass is one of the CPU, whatever the job trains on: its steps say nothing about it.
    rank_.pulse.Begin(Activity::kPreparing, "writing samples");
    return rank_.clock.Monotonic() - began < kSamplesTime
               ? absl::OkStatus()
               : absl::DeadlineExceededError(
                     absl::StrCat("it takes longer than ", absl::FormatDuration(kSamplesTime)));
  };
  absl::Status written;
  const absl::Status together =
      trainer.OnRankZero([&] { written = samples_.Write(options, report); });
  if (!together.ok()) {
    return rank_.Blame(together);
  }
  if (!written.ok()) {
    rank_.link.SendLog("warning", absl::StrCat("step ", step, ": ", report.samples_size(), " of ",
                                               samples_.size(), " samples: ", written.message()));
  }
  for (v1::SampleText& sample : *report.mutable_samples()) {
    sample.set_step(step);
    rank_.link.SendLog("info", absl::StrCat("step ", step, ": ", spec::SampleLine(sample)));
  }
  rank_.link.SendPhase("training");
  return absl::OkStatus();
}

}  // namespace hearth::trainer
