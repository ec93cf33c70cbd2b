#include "worker/trainer/rank/checkpoint/checkpoint_duty.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "worker/trainer/rank/report_parts.h"

namespace hearth::trainer {

CheckpointDuty::CheckpointDuty(RankContext& rank,
                               Meeting& meeting,
                               RankSession& session,
                               bool prune,
                               std::function<RunIdentity()> identity)
    : rank_(rank),
      meeting_(meeting),
      session_(session),
      prune_(prune),
      identity_(std::move(identity)) {}

absl::Status CheckpointDuty::Start() {
  if (!rank_.leader && rank_.agreed.shards() <= 1) {
    return absl::OkStatus();
  }
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

absl::Status CheckpointDuty::SaveIfDue(StepResult& result, bool asked) {
  const int64_t every = rank_.spec.checkpoint().every_steps();
  if (writer_ == nullptr || !(asked || rank_.Due(result.step, every))) {
    return absl::OkStatus();
  }
  const absl::Duration start = rank_.clock.Monotonic();
  rank_.blame = v1::EXIT_REASON_IO;
  // A checkpoint that somebody asked for, and the last one, wait for the disk; periodic ones are
  // skipped.
  const bool needed = asked || result.step == rank_.spec.train().steps();
  HEARTH_ASSIGN_OR_RETURN(const bool ready, WritersReady(needed));
  if (ready) {
    HEARTH_RETURN_IF_ERROR(Submit());
  } else {
    ++skipped_;
    rank_.link.SendLog(
        "warning", absl::StrFormat("no checkpoint of step %d: the one before is still being "
                                   "written; checkpoint.every_steps %d is too often for this disk",
                                   result.step, every));
  }
  result.report.set_checkpoint_seconds(absl::ToDoubleSeconds(rank_.clock.Monotonic() - start));
  return absl::OkStatus();
}

absl::Status CheckpointDuty::TakeFinished() {
  return writer_ == nullptr ? absl::OkStatus() : Take(false);
}

absl::Status CheckpointDuty::Finish(std::optional<int64_t> resumed_step) {
  if (writer_ == nullptr) {
    return absl::OkStatus();
  }
  rank_.pulse.Begin(Activity::kOther, "saving");
  rank_.blame = v1::EXIT_REASON_IO;
  rank_.link.SendPhase("saving");
  // A run that ends at the step it resumed from has nothing new to save.
  const bool resumed_here = resumed_step == session_.trainer().step();
  if (submitted_step_ != session_.trainer().step() && !resumed_here) {
    HEARTH_RETURN_IF_ERROR(Submit());
  }
  return Take(true);
}

CheckpointContent CheckpointDuty::Content() {
  CheckpointContent content =
      MakeCheckpointContent(session_.engine(), session_.trainer(), rank_.agreed.batch,
                            rank_.task.world_size(), identity_());
  content.sharded.store = &rank_.link;
  content.reader = reader_.get();
  return content;
}

absl::StatusOr<bool> CheckpointDuty::WritersReady(bool needed) {
  if (needed) {
    writer_->AwaitIdle();
  }
  int32_t busy = writer_->CanBegin() ? 0 : 1;
  // A divided checkpoint needs a piece from each rank, so all begin one or none does.
  if (rank_.agreed.shards() > 1) {
    const absl::Status agreed = meeting_.comm().AllReduceMax(absl::MakeSpan(&busy, 1));
    if (!agreed.ok()) {
      return rank_.Blame(agreed);
    }
  }
  return busy == 0;
}

absl::Status CheckpointDuty::Submit() {
  submitted_step_ = session_.trainer().step();
  if (const absl::Status whole = session_.trainer().TakeWholeWeights(); !whole.ok()) {
    return rank_.Blame(whole);
  }
  HEARTH_RETURN_IF_ERROR(writer_->Submit(Content()));
  // The next step may run, but its update must not overwrite what is still being copied.
  if (reader_ != nullptr) {
    session_.trainer().HoldUpdate(reader_->updates_may_begin());
  }
  return absl::OkStatus();
}

absl::Status CheckpointDuty::Take(bool wait) {
  while (std::optional<absl::StatusOr<CommittedCheckpoint>> done = writer_->Take(wait)) {
    const absl::Status& newest = newest_ = done->status();
    lacking_ = newest.ok() ? 0 : lacking_ + 1;
    if (newest.ok() && rank_.leader) {
      Announce(**done);
    }
    if (newest.ok()) {
      continue;
    }
    // Rank 0 hears what the other ranks could not write, and the checkpoint before still stands.
    // Trouble of several checkpoints in a row does not pass by itself.
    const bool passing = rank_.agreed.shards() > 1 &&
                         (!rank_.leader || (absl::IsUnavailable(newest) && lacking_ < kLackingMax));
    if (!passing) {
      rank_.blame = v1::EXIT_REASON_IO;
      return Annotate(newest, "checkpoint");
    }
    rank_.link.SendLog("error", absl::StrCat("no checkpoint: ", newest.message()));
  }
  // A run does not end well without its last checkpoint, even if that failure was logged before.
  return wait ? newest_ : absl::OkStatus();
}

void CheckpointDuty::Announce(const CommittedCheckpoint& committed) {
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

}  // namespace hearth::trainer
