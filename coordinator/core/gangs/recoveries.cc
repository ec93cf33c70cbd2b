#include "coordinator/core/gangs/recoveries.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {

absl::Duration Recoveries::Age(const v1::Moment& moment,
                               const google::protobuf::Timestamp& time) const {
  // By the monotonic clock, also over a restart of the coordinator; by the wall clock if the
  // machine has booted since.
  return TimeSince(moment, turn_.now()).value_or(turn_.wall() - FromProto(time));
}

void Recoveries::NoteFault(JobState& job, const Verdict& verdict) {
  if (verdict.rank < 0) {
    return;
  }
  v1::Recovery& recovery = job.recovery();
  if (recovery.seconds() > 0.0) {
    recovery.Clear();  // of an earlier one
  }
  const v1::RankRecord& rank = job.record().ranks(verdict.rank);
  const absl::Duration age =
      rank.has_fault_time() ? Age(rank.fault_moment(), rank.fault_time()) : absl::ZeroDuration();
  // The earliest of several faults counts: from there on no step was done.
  if (!recovery.has_fault_time() ||
      age > Age(job.record().recovery_since(), recovery.fault_time())) {
    const Now fault = Before(turn_.now(), age);
    *recovery.mutable_fault_time() =
        rank.has_fault_time() ? rank.fault_time() : ToProto(fault.wall);
    job.set_recovery_since(MomentOf(fault));
  }
  recovery.set_rank(verdict.rank);
  recovery.set_worker_id(rank.worker_id());
  recovery.set_host(workers_.at(rank.worker_id()).worker().host());
  recovery.set_reason_code(verdict.code);
  const std::string& said = rank.lost()       ? rank.lost_reason()
                            : rank.has_exit() ? rank.exit().exit().message()
                                              : rank.dying().message();
  recovery.set_reason(said.empty() ? verdict.message : said);
  jobs_.Mark(job, true);
}

void Recoveries::NoteRecovered(JobState& job, int64_t step) {
  if (!job.job().has_recovery()) {
    return;
  }
  v1::Recovery& recovery = job.recovery();
  if (!recovery.has_fault_time() || recovery.seconds() > 0.0) {
    return;
  }
  // Not 0: seconds > 0 is what tells a recovery that is over from one under way.
  recovery.set_seconds(std::max(
      0.001, absl::ToDoubleSeconds(Age(job.record().recovery_since(), recovery.fault_time()))));
  recovery.set_step(step - 1);
  recovery.set_workers(job.record().ranks_size());
  states_.AddEvent(
      job, "recovery", "coordinator", recovery.reason_code(),
      absl::StrFormat("recovered in %.1f s: lost rank %d on %s (%s), resumed from step %d with "
                      "%d worker%s",
                      recovery.seconds(), recovery.rank(), recovery.worker_id(), recovery.reason(),
                      recovery.step(), recovery.workers(), recovery.workers() == 1 ? "" : "s"),
      job.state(), job.state());
}

}  // namespace hearth::coordinator
