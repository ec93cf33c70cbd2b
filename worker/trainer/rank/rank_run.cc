#include "worker/trainer/rank/rank_run.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/fault/fault.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/rank/job_facts.h"
#include "worker/trainer/rank/rank.h"
#include "worker/trainer/rank/state.h"
#include "worker/trainer/rank/step_report.h"

namespace hearth::trainer {

v1::TrainerExit RankRun::Run() {
  absl::Status status = Prepare();
  if (status.ok() && !done_) {
    status = Train();
  }
  rank_.pulse.Begin(Activity::kOther, "ending");
  // Whatever this rank was doing: in a process with a GPU an internal error is the CUDA runtime's.
  if (rank_.cuda != nullptr && absl::IsInternal(status)) {
    rank_.blame = v1::EXIT_REASON_DEVICE;
  }
  v1::TrainerExit exit;
  exit.set_reason(status.ok() ? outcome_ : rank_.blame);
  exit.set_message(std::string(status.message()));
  // The steps of a trial are not the job's.
  exit.set_step(session_.JobStep());
  exit.set_checkpoint_step(committed_step_);
  SetTime(*exit.mutable_time(), rank_.clock.Now());
  for (const Decision& decision : decisions_) {
    ToProto(decision, *exit.add_decisions());
  }
  if (!status.ok()) {
    rank_.link.SendLog("error", std::string(status.message()));
  }
  // On several GPUs a rank that fails, or whose peers do not part, is broken: freeing its memory
  // could wait for kernels that wait for peers. RunRank leaves that to the end of the process.
  broken_ = rank_.cuda != nullptr && rank_.task.world_size() > 1 && session_.Bound() &&
            !(status.ok() && session_.Part().ok());
  rank_.link.SendExit(exit);
  HEARTH_FAULT_POINT("trainer.before_exit");
  return exit;
}

int64_t RankRun::MemoryInUse() {
  if (rank_.cuda == nullptr) {
    return ResidentBytes();
  }
  // After the first steps nothing takes memory any more; the driver is asked now and then.
  constexpr int64_t kEvery = 64;
  int64_t total = 0;
  if (memory_asked_++ % kEvery < 2 &&
      kernels::DeviceMemory(*rank_.cuda, memory_free_, total).ok()) {
    memory_in_use_ = total - memory_free_;
  }
  return memory_in_use_;
}

absl::Status RankRun::Train() {
  rank_.link.SendPhase("training");
  rank_.pulse.Begin(Activity::kPreparing, "the first step");
  while (!done_ && session_.trainer().step() < rank_.spec.train().steps()) {
    HEARTH_RETURN_IF_ERROR(OneStep());
  }
  HEARTH_RETURN_IF_ERROR(data_.Damage());
  data_.NoteUnverified();
  if (writer_ == nullptr) {
    return absl::OkStatus();
  }
  rank_.pulse.Begin(Activity::kOther, "saving");
  rank_.blame = v1::EXIT_REASON_IO;
  rank_.link.SendPhase("saving");
  // A run that ends at the step it resumed from has nothing new to save.
  const bool resumed_here =
      resumed_.has_value() && resumed_->meta.step == session_.trainer().step();
  if (submitted_step_ != session_.trainer().step() && !resumed_here) {
    HEARTH_RETURN_IF_ERROR(SubmitCheckpoint());
  }
  return TakeCheckpoints(true);
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
  NoteDecisions(result->decisions);
  if (result->stops) {
    rank_.blame = v1::EXIT_REASON_NUMERICAL;
    return absl::OutOfRangeError(VerdictText(result->verdict, result->facts, result->step));
  }
  // Refused: the weights are those of the step before, so nothing is evaluated, saved or reported.
  if (result->verdict != Verdict::kGood) {
    return absl::OkStatus();  // the next launch is of the same step
  }
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.after_step"));
  std::optional<double> validation_loss;
  // With steps in flight the weights are already those of a later step.
  if (session_.trainer().in_flight() == 0) {
    HEARTH_ASSIGN_OR_RETURN(validation_loss,
                            evaluations_.EvaluateIfDue(session_.trainer(), result->step));
    HEARTH_RETURN_IF_ERROR(evaluations_.AskIfDue(session_.trainer(), result->step, result->report));
    HEARTH_RETURN_IF_ERROR(Act(*result));
  }
  NoteResumed(result->step);
  Report(*result, validation_loss);
  return writer_ != nullptr ? TakeCheckpoints(false) : absl::OkStatus();
}

void RankRun::NoteResumed(int64_t step) {
  if (std::exchange(stepped_, true) || !resumed_.has_value() || !rank_.leader) {
    return;
  }
  resume_time_ = rank_.clock.Monotonic() - started_;
  rank_.link.SendLog(
      "info", absl::StrFormat("resumed: step %d is done %.2f s after this trainer began", step,
                              absl::ToDoubleSeconds(resume_time_)));
}

void RankRun::NoteDecisions(std::vector<Decision>& decisions) {
  if (!rank_.leader) {
    return;
  }
  for (Decision& decision : decisions) {
    rank_.link.SendLog(decision.cause == Verdict::kGood ? "info" : "warning",
                       DecisionText(decision));
    decisions_.push_back(std::move(decision));
  }
}

absl::Status RankRun::Act(StepResult& result) {
  const ControlRequests asked = controls_.TakeAgreed();
  const bool leave = asked.stop || asked.pause;
  if (leave && result.step < rank_.spec.train().steps()) {
    // Train() writes the checkpoint on the way out.
    outcome_ = asked.stop ? v1::EXIT_REASON_STOPPED : v1::EXIT_REASON_PAUSED;
    done_ = true;
    return absl::OkStatus();
  }
  const int64_t every = rank_.spec.checkpoint().every_steps();
  if (writer_ != nullptr && (asked.save || rank_.Due(result.step, every))) {
    const absl::Duration start = rank_.clock.Monotonic();
    rank_.blame = v1::EXIT_REASON_IO;
    // A checkpoint that somebody asked for, and the last one, wait for the disk; periodic ones are
    // skipped.
    const bool needed = asked.save || result.step == rank_.spec.train().steps();
    HEARTH_ASSIGN_OR_RETURN(const bool ready, WritersReady(needed));
    if (ready) {
      HEARTH_RETURN_IF_ERROR(SubmitCheckpoint());
    } else {
      ++skipped_checkpoints_;
      rank_.link.SendLog(
          "warning",
          absl::StrFormat("no checkpoint of step %d: the one before is still being "
                          "written; checkpoint.every_steps %d is too often for this disk",
                          result.step, every));
    }
    result.report.set_checkpoint_seconds(absl::ToDoubleSeconds(rank_.clock.Monotonic() - start));
  }
  return absl::OkStatus();
}

void RankRun::Report(const StepResult& result, std::optional<double> validation_loss) {
  compute_times_.Add(result.compute_seconds);
  const absl::Duration now = rank_.clock.Monotonic();
  // From every rank: by these times the coordinator finds the one that the others wait for.
  if (now - last_progress_ >= absl::Seconds(1)) {
    last_progress_ = now;
    rank_.link.SendProgress(result.step, compute_times_.Median());
  }
  if (!rank_.leader) {
    return;
  }
  v1::StepReport report = result.report;
  report.set_epoch(rank_.task.epoch());
  report.set_step(result.step);
  SetTime(*report.mutable_time(), rank_.clock.Now());
  report.set_loss(result.facts.loss);
  report.set_grad_norm(result.facts.grad_norm);
  const double seconds = report.step_seconds();
  report.set_tokens_per_second(
      seconds > 0 ? static_cast<double>(rank_.agreed.batch.global_tokens()) / seconds : 0);
  report.set_memory_bytes(MemoryInUse());
  report.set_mfu(peak_flops_ > 0 ? report.tokens_per_second() * flops_per_token_ / peak_flops_ : 0);
  if (validation_loss.has_value()) {
    report.set_validation_loss(*validation_loss);
  }
  report.set_skipped_checkpoints(skipped_checkpoints_);
  report.set_resume_seconds(absl::ToDoubleSeconds(resume_time_));
  report.set_recipe(std::string(RecipeOf(result.format)));
  AddGuard(session_.trainer().ladder().counts(), decisions_, report);
  if (result.counted) {
    AddTensorStats(session_.engine(), report);
  }
  rank_.link.SendStep(report);
}

std::string_view RankRun::RecipeOf(const spec::StepFormat& format) const {
  const spec::PrecisionPlan& precision = session_.engine().precision();
  if (format.own() || !precision.quantised()) {
    return session_.engine().recipe().name;
  }
  return format.format == spec::LayerFormat::kFallback ? precision.fallback->name
                                                       : spec::PlainRecipe().name;
}

CheckpointContent RankRun::Content() {
  RunIdentity identity;
  identity.job_id = rank_.task.job_id();
  identity.epoch = rank_.task.epoch();
  // A loss of an earlier step is not that of these weights.
  identity.validation_loss = evaluations_.LossOf(session_.trainer().step());
  identity.tokenizer_from = data_.tokenizer_folder();
  identity.trial = trial_.has_value() ? TrialToJson(*trial_) : "";
  CheckpointContent content = MakeCheckpointContent(
      session_.engine(), session_.trainer(), rank_.agreed.batch, rank_.task.world_size(), identity);
  content.sharded.store = &rank_.link;
  content.reader = reader_.get();
  return content;
}

absl::Status RankRun::StartWriter() {
  PinHooks hooks;
  if (rank_.cuda != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(reader_, DeviceReader::New(session_.engine()));
    hooks = reader_->hooks();
  }
  writer_ = std::make_unique<BackgroundWriter>(rank_.env, rank_.clock, rank_.task.checkpoint_dir(),
                                               prune_ ? rank_.spec.checkpoint().keep_last() : 0,
                                               std::move(hooks));
  writer_->Reserve(Content());
  return absl::OkStatus();
}

absl::StatusOr<bool> RankRun::WritersReady(bool needed) {
  if (needed) {
    writer_->AwaitIdle();
  }
  int32_t busy = writer_->CanBegin() ? 0 : 1;
  // A divided checkpoint needs a piece from each rank, so all begin one or none does.
  if (rank_.agreed.shards > 1) {
    const absl::Status agreed = meeting_.comm().AllReduceMax(absl::MakeSpan(&busy, 1));
    if (!agreed.ok()) {
      return rank_.Blame(agreed);
    }
  }
  return busy == 0;
}

absl::Status RankRun::SubmitCheckpoint() {
  submitted_step_ = session_.trainer().step();
  if (const absl::Status whole = session_.trainer().CompleteWeights(); !whole.ok()) {
    return rank_.Blame(whole);
  }
  HEARTH_RETURN_IF_ERROR(writer_->Submit(Content()));
  // The next step may run, but its update must not overwrite what is still being copied.
  if (reader_ != nullptr) {
    session_.trainer().HoldUpdate(reader_->updates_may_begin());
  }
  return absl::OkStatus();
}

absl::Status RankRun::TakeCheckpoints(bool wait) {
  while (std::optional<absl::StatusOr<CommittedCheckpoint>> done = writer_->Take(wait)) {
    const absl::Status& newest = newest_checkpoint_ = done->status();
    lacking_ = newest.ok() ? 0 : lacking_ + 1;
    if (newest.ok() && rank_.leader) {
      AnnounceCheckpoint(**done);
    }
    if (newest.ok()) {
      continue;
    }
    // Rank 0 hears what the other ranks could not write, and the checkpoint before still stands.
    // Trouble of several checkpoints in a row does not pass by itself.
    const bool passing = rank_.agreed.shards > 1 &&
                         (!rank_.leader || (absl::IsUnavailable(newest) && lacking_ < kLackingMax));
    if (!passing) {
      rank_.blame = v1::EXIT_REASON_IO;
      return Annotate(newest, "checkpoint");
    }
    rank_.link.SendLog("error", absl::StrCat("no checkpoint: ", newest.message()));
  }
  // A run does not end well without its last checkpoint, even if that failure was logged before.
  return wait ? newest_checkpoint_ : absl::OkStatus();
}

void RankRun::AnnounceCheckpoint(const CommittedCheckpoint& committed) {
  committed_step_ = committed.step;
  rank_.link.SendCheckpoint(MakeAnnouncement(committed));
  rank_.link.SendLog(
      "info", absl::StrFormat("checkpoint of step %d: %s, %s in %.2f s", committed.step,
                              committed.path, FormatBytes(committed.bytes), committed.seconds));
  if (committed.stood_still) {
    rank_.link.SendLog("warning",
                       "training stood still while the checkpoint was written: there is too "
                       "little memory for a snapshot of it");
  }
}

v1::TrainerExit RunRank(const RankOptions& options) {
  auto run = std::make_unique<RankRun>(options);
  v1::TrainerExit exit = run->Run();
  if (run->broken()) {
    // Kept on purpose: its destructors would free what peers or kernels still use.
    static_cast<void>(run.release());
  }
  return exit;
}

}  // namespace hearth::trainer
