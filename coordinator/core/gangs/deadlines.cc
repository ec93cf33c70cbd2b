#include "coordinator/core/gangs/deadlines.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/reasons/reason_codes.h"
#include "coordinator/core/gangs/verdict.h"
#include "coordinator/core/transitions.h"

namespace hearth::coordinator {

void Deadlines::Check() {
  const std::set<std::string> active = jobs_.active();  // a copy: gangs end here
  for (const std::string& id : active) {
    JobState& job = *jobs_.Edit(id);
    CheckStop(job);
    CheckStart(job);
    CheckKills(job);
  }
}

void Deadlines::CheckStop(JobState& job) {
  if (gangs_.of(job.job().job_id()).GraceIsOver(turn_.mono()) && !job.record().stop().kill() &&
      !ReadyToRestart(job.record())) {
    const std::string why =
        absl::StrCat("grace of ", absl::FormatDuration(Grace(job.job())), " is over");
    states_.Note(job, "update", "coordinator",
                 absl::StrCat(why, "; killing the ranks that are left"));
    ends_.Kill(job, why);
  }
  const v1::ResourceSpec& spec = job.job().spec().resources();
  if (job.state() == v1::JOB_STATE_RUNNING && spec.has_time_limit() && !job.record().has_stop()) {
    const double limit =
        static_cast<double>(spec.time_limit().seconds()) + 1e-9 * spec.time_limit().nanos();
    const double used = Jobs::RunningSeconds(job, turn_.mono());
    if (used >= limit) {
      const std::string reason = absl::StrCat("resources.time_limit of ", limit, " s is used up");
      ends_.Stop(job, v1::JOB_STATE_CANCELLING, v1::CONTROL_BIT_STOP, "coordinator",
                 reasons::kTimeLimit, reason, false);
      // Stop ends a job at once if none of its ranks is left; then there is no stop to mark.
      if (job.state() == v1::JOB_STATE_CANCELLING) {
        job.gang().EndInFailure(true);
      }
    }
  }
}

// What a gang computes once it has formed (a trial, the first step) is not bounded: nothing tells a
// long computation from one that hangs, see HearthJobStuck.
void Deadlines::CheckStart(JobState& job) {
  if (job.state() != v1::JOB_STATE_STARTING || job.record().has_stop()) {
    return;
  }
  // A rank that is out of reach has told only old phases; whether it is lost is decided elsewhere.
  for (const v1::RankRecord& rank : job.record().ranks()) {
    const WorkerState& worker = workers_.at(rank.worker_id());
    if (rank.gone() || worker.connection == 0 || liveness_.Silent(worker, turn_.mono())) {
      return;
    }
  }
  const std::string why =
      gangs_.of(job.job().job_id()).WhyNotFormed(job.record(), options_, turn_.mono());
  if (why.empty()) {
    return;
  }
  // The reason is noted before the kill: when no rank is to blame, JudgeGang takes it from there.
  states_.Transition(job, v1::JOB_STATE_RECOVERING, "coordinator", reasons::kGangNotFormed, why);
  job.gang().SayWhy(reasons::kGangNotFormed, why);
  ends_.Kill(job, why);
}

void Deadlines::CheckKills(JobState& job) {
  if (!job.record().stop().kill() || !HasGang(job.state())) {
    return;
  }
  const Gang& gang = gangs_.of(job.job().job_id());
  const bool again = gang.KillIsDue(turn_.mono());
  const bool over = gang.KillTimedOut(turn_.mono(), options_.kill_timeout);
  // LoseRank below may end the gang, and with it this state.
  for (int i = 0; i < job.record().ranks_size() && HasGang(job.state()); ++i) {
    const v1::RankRecord& rank = job.record().ranks(i);
    const WorkerState& worker = workers_.at(rank.worker_id());
    // Nobody can be asked without a stream; liveness decides about that worker.
    if (rank.gone() || worker.connection == 0) {
      continue;
    }
    if (over) {
      // The worker is alive but cannot prove the process gone. The job must not hang for it; the
      // worker is not used again.
      const v1::Job& view = job.job();
      // Fenced, so that the task's late exit is recognised and makes the worker healthy again.
      workers_.Fence(worker, {view.job_id(), view.epoch()}, turn_.mono());
      workers_.MarkUnhealthy(worker, absl::StrCat("does not confirm the kill of ", view.job_id(),
                                                  " epoch ", view.epoch()));
      ends_.LoseRank(job, i,
                     absl::StrCat("worker ", rank.worker_id(), " does not confirm the kill"),
                     reasons::kWorkerLost);
    } else if (again) {
      ends_.SendStop(job, i);
    }
  }
}

}  // namespace hearth::coordinator
