#include "worker/trainer/rank/rank_run.h"

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "worker/trainer/device/rank_device.h"
#include "worker/trainer/rank/rank.h"
#include "worker/trainer/rank/report_parts.h"

namespace hearth::trainer {
namespace {

// Ranks that part in order need a fraction of it.
constexpr absl::Duration kPartingShown = absl::Seconds(1);

}  // namespace

v1::TrainerExit RankRun::Run() {
  absl::Status status = Prepare();
  if (status.ok() && !left_.has_value()) {
    status = Train();
  }
  rank_.pulse.Begin(Activity::kOther, "ending");
  v1::TrainerExit exit;
  exit.set_reason(status.ok() ? left_.value_or(v1::EXIT_REASON_FINISHED) : rank_.BlameFor(status));
  exit.set_device_too_small(IsDeviceTooSmall(status));
  exit.set_message(std::string(status.message()));
  // The steps of a trial are not the job's.
  exit.set_step(session_.JobStep());
  exit.set_checkpoint_step(checkpoints_.committed_step());
  SetTime(*exit.mutable_time(), rank_.clock.Now());
  reporter_.AddDecisions(exit);
  if (!status.ok()) {
    rank_.link.SendLog("error", std::string(status.message()));
  }
  // On several GPUs a rank that fails, or whose peers do not part, is broken: freeing its memory
  // could wait for kernels that wait for peers. RunRank leaves that to the end of the process.
  const absl::Duration parting = rank_.clock.Monotonic();
  broken_ = rank_.cuda != nullptr && rank_.task.world_size() > 1 && session_.Bound() &&
            !(status.ok() && session_.Part().ok());
  const absl::Duration took = rank_.clock.Monotonic() - parting;
  if (took > kPartingShown) {
    rank_.link.SendLog(
        "warning", absl::StrCat("parting from the other ranks took ",
                                absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(100)))));
  }
  rank_.link.SendExit(exit);
  HEARTH_FAULT_POINT("trainer.before_exit");
  return exit;
}

absl::Status RankRun::Train() {
  rank_.link.SendPhase("training");
  rank_.pulse.Begin(Activity::kPreparing, "the first step");
  while (!left_.has_value() && session_.trainer().step() < rank_.spec.train().steps()) {
    HEARTH_RETURN_IF_ERROR(OneStep());
  }
  HEARTH_RETURN_IF_ERROR(data_.Damage());
  data_.NoteUnverified();
  return checkpoints_.Finish(resumed_.has_value() ? std::optional(resumed_->meta.step)
                                                  : std::nullopt);
}

bool RankRun::Pauses(int64_t step) const {
  return evaluations_.Due(step) || rank_.Due(step, rank_.spec.checkpoint().every_steps());
}

absl::Status RankRun::OneStep() {
  HEARTH_RETURN_IF_ERROR(data_.Damage());
  // A save, a pause or a stop waits until the steps in flight are collected. So do evaluations and
  // checkpoints, which look at the weights of one step.
  const bool stops = controls_.pending() || Pauses(session_.trainer().launched());
  const bool drain = session_.trainer().in_flight() > 0 &&
                     (stops || session_.trainer().launched() >= rank_.spec.train().steps());
  if (!drain) {
    const absl::Status launched = session_.trainer().Launch(controls_.Take());
    if (!launched.ok()) {
      return rank_.Blame(launched);
    }
    // The device always has a next step to go on with: the numbers of a step are read once lag()
    // more are launched.
    if (session_.trainer().in_flight() <= session_.trainer().lag()) {
      return absl::OkStatus();
    }
  }
  absl::StatusOr<StepResult> result = session_.trainer().Collect();
  if (!result.ok()) {
    return rank_.Blame(result.status());
  }
  // From here to the next launch this rank waits for the worker, the disk and its peers.
  const Pulse::Scope between(rank_.pulse, Activity::kOther, "between two steps");
  // These are the maxima over all ranks (ReduceStepSums), so all ranks act on them after the same
  // step.
  controls_.Agreed(result->control);
  reporter_.NoteDecisions(result->decisions);
  if (result->stops) {
    rank_.blame = v1::EXIT_REASON_NUMERICAL;
    return absl::OutOfRangeError(VerdictText(result->verdict, result->facts, result->step));
  }
  // Refused: the weights are those of the step before, so nothing is evaluated, saved or reported.
  if (result->verdict != Verdict::kGood) {
    return absl::OkStatus();  // the next launch is of the same step
  }
  if (const absl::Status fault = fault::Check("trainer.after_step"); !fault.ok()) {
    return rank_.Blame(fault);
  }
  std::optional<double> validation_loss;
  // With steps in flight the weights are already those of a later step.
  if (session_.trainer().in_flight() == 0) {
    HEARTH_ASSIGN_OR_RETURN(validation_loss,
                            evaluations_.EvaluateIfDue(session_.trainer(), result->step));
    HEARTH_RETURN_IF_ERROR(evaluations_.AskIfDue(session_.trainer(), result->step, result->report));
    HEARTH_RETURN_IF_ERROR(evaluations_.WriteSamplesIfDue(session_.trainer(), session_.engine(),
                                                          result->step, result->report));
    HEARTH_RETURN_IF_ERROR(Act(*result));
  }
  reporter_.NoteStep(result->step, resumed_.has_value());
  reporter_.Report(*result, validation_loss, checkpoints_.skipped());
  return checkpoints_.TakeFinished();
}

absl::Status RankRun::Act(StepResult& result) {
  const ControlRequests asked = controls_.TakeAgreed();
  const bool leave = asked.stop || asked.pause;
  if (leave && result.step < rank_.spec.train().steps()) {
    // Train() writes the checkpoint on the way out.
    left_ = asked.stop ? v1::EXIT_REASON_STOPPED : v1::EXIT_REASON_PAUSED;
    return absl::OkStatus();
  }
  return checkpoints_.SaveIfDue(result, asked.save);
}

RunIdentity RankRun::Identity() const {
  RunIdentity identity;
  identity.job_id = rank_.task.job_id();
  identity.epoch = rank_.task.epoch();
  // A loss of an earlier step is not that of these weights.
  identity.validation_loss = evaluations_.LossOf(session_.trainer().step());
  identity.tokenizer_from = data_.tokenizer_folder();
  identity.trial = trial_.ChosenAsJson();
  return identity;
}

v1::TrainerExit RunTraining(const RankOptions& options) {
  auto run = std::make_unique<RankRun>(options);
  v1::TrainerExit exit = run->Run();
  if (run->broken()) {
    // Kept on purpose: its destructors would free what peers or kernels still use.
    static_cast<void>(run.release());
  }
  return exit;
}

}  // namespace hearth::trainer
