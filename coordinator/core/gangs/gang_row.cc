#include "coordinator/core/gangs/gang_row.h"

#include <algorithm>

#include "coordinator/core/errors.h"

namespace hearth::coordinator {
namespace {

// Bounds what a store may hold after damage; far above what counts, far below an overflow.
constexpr int64_t kSeqMax = int64_t{1} << 60;

void SetFault(v1::RankRecord& record, Now fault) {
  *record.mutable_fault_time() = ToProto(fault.wall);
  *record.mutable_fault_moment() = MomentOf(fault);
}

}  // namespace

void GangRow::Restored() {
  for (v1::RankRecord& rank : *row_.mutable_ranks()) {
    rank.set_applied_seq(std::clamp<int64_t>(rank.applied_seq(), 0, kSeqMax));
  }
}

void GangRow::Begin(absl::Time now) {
  row_.clear_ranks();
  row_.clear_stop();
  row_.set_epoch_opened(false);
  *row_.mutable_epoch_time() = ToProto(now);
}

void GangRow::AddRank(const std::string& worker_id, const std::string& incarnation) {
  v1::RankRecord& rank = *row_.add_ranks();
  rank.set_worker_id(worker_id);
  rank.set_incarnation(incarnation);
}

bool GangRow::Confirm(int rank) {
  if (row_.ranks(rank).confirmed()) {
    return false;
  }
  row_.mutable_ranks(rank)->set_confirmed(true);
  return true;
}

void GangRow::Applied(int rank, int64_t seq) {
  row_.mutable_ranks(rank)->set_applied_seq(seq);
}

bool GangRow::Dying(int rank, const v1::TaskDying& dying, Now now) {
  v1::RankRecord& record = *row_.mutable_ranks(rank);
  // After our own kill a death explains nothing.
  if (record.has_dying() || row_.stop().kill()) {
    return false;
  }
  *record.mutable_dying() = dying.exit();
  SetFault(record, Before(now, absl::Seconds(dying.seconds())));
  return true;
}

void GangRow::Exited(int rank, const v1::TaskExit& exit, Now now) {
  v1::RankRecord& record = *row_.mutable_ranks(rank);
  *record.mutable_exit() = exit;
  record.set_gone(true);
  // Dying told already when the fault began, and earlier than the exit can.
  if (!record.has_dying()) {
    SetFault(record, Before(now, absl::Seconds(exit.silent_seconds())));
  }
  const v1::ExitReason reason = exit.exit().reason();
  // One that was dying before we killed it is the cause, not a consequence.
  const bool own_death = exit.before_kill() && reason == v1::EXIT_REASON_KILLED;
  // What ranks end with because of a kill: the signal itself, or peers that are gone. With any
  // other reason the fault is their own, whatever we sent.
  record.set_killed_by_us(row_.stop().kill() && !record.has_dying() && !own_death &&
                          (reason == v1::EXIT_REASON_KILLED || reason == v1::EXIT_REASON_ABORTED ||
                           reason == v1::EXIT_REASON_COMM ||
                           reason == v1::EXIT_REASON_UNSPECIFIED));
}

void GangRow::Lost(int rank, const std::string& why, Now last_seen) {
  v1::RankRecord& record = *row_.mutable_ranks(rank);
  record.set_gone(true);
  record.set_lost(true);
  record.set_lost_reason(why);
  if (!record.has_dying()) {
    SetFault(record, last_seen);
  }
}

void GangRow::Stop(v1::ControlBit bit, const std::string& code, const std::string& reason) {
  row_.mutable_stop()->set_control_bit(bit);
  // Only the time limit sets it, after this call. A stop that comes later replaces it.
  row_.mutable_stop()->set_fail(false);
  SayWhy(code, reason);
}

void GangRow::SayWhy(const std::string& code, const std::string& reason) {
  row_.mutable_stop()->set_reason_code(code);
  row_.mutable_stop()->set_reason(reason);
}

void GangRow::Kill(const std::string& why) {
  row_.mutable_stop()->set_kill(true);
  if (row_.stop().reason().empty()) {
    row_.mutable_stop()->set_reason(why);
  }
}

}  // namespace hearth::coordinator
