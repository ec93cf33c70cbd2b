// All that follows from time passing.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/parts.h"

namespace hearth::coordinator {

std::vector<CommandRow> TimeCommands() {
  return {
      Row<Tick>("tick"),
  };
}

void CoreParts::On(const Tick&) {
  last_tick_ = Mono();
  CheckSilence();
  AskForFolders();
  const std::set<std::string> active = jobs_.active();
  for (const std::string& id : active) {
    CheckDeadlines(*jobs_.Edit(id));
    CheckStart(*jobs_.Edit(id));
    CheckKills(*jobs_.Edit(id));
  }
  for (const auto& [id, worker] : workers_.all()) {
    workers_.CheckFenced(worker, Mono());
    workers_.ReviewState(worker, FactsOf(worker));
  }
  Expire();
  if (plan_.DueAt(Mono())) {
    plan_.Begin(Mono(), jobs_.waiting().size());
    effects_.planned = true;
    Schedule();
  }
}

void CoreParts::CheckDeadlines(JobState& job) {
  if (gangs_.of(job.job().job_id()).GraceIsOver(Mono()) && !job.record().stop().kill() &&
      !ReadyToRestart(job.record())) {
    const std::string why =
        absl::StrCat("grace of ", absl::FormatDuration(Grace(job.job())), " is over");
    Note(job, "update", "coordinator", absl::StrCat(why, "; killing the ranks that are left"));
    Kill(job, why);
  }
  const v1::ResourceSpec& spec = job.job().spec().resources();
  if (job.state() == v1::JOB_STATE_RUNNING && spec.has_time_limit() && !job.record().has_stop()) {
    const double limit =
        static_cast<double>(spec.time_limit().seconds()) + 1e-9 * spec.time_limit().nanos();
    const double used = Jobs::RunningSeconds(job, Mono());
    if (used >= limit) {
      const std::string reason = absl::StrCat("resources.time_limit of ", limit, " s is used up");
      Stop(job, v1::JOB_STATE_CANCELLING, v1::CONTROL_BIT_STOP, "coordinator", "time_limit", reason,
           false);
      if (job.state() == v1::JOB_STATE_CANCELLING) {
        job.gang().EndInFailure(true);
      }
    }
  }
}

void CoreParts::CheckKills(JobState& job) {
  if (!job.record().stop().kill() || !HasGang(job.state())) {
    return;
  }
  const Gang& gang = gangs_.of(job.job().job_id());
  const bool again = gang.KillIsDue(Mono());
  const bool over = gang.KillTimedOut(Mono(), options_.kill_timeout);
  for (int i = 0; i < job.record().ranks_size() && HasGang(job.state()); ++i) {
    const v1::RankRecord& rank = job.record().ranks(i);
    const WorkerState& worker = workers_.at(rank.worker_id());
    if (rank.gone() || worker.connection == 0) {
      continue;
    }
    if (over) {
      // The worker is alive but cannot prove the process gone. The job must not hang for it; the
      // worker is not used again.
      const v1::Job& view = job.job();
      workers_.Fence(worker, {view.job_id(), view.epoch()}, Mono());
      workers_.MarkUnhealthy(worker, absl::StrCat("does not confirm the kill of ", view.job_id(),
                                                  " epoch ", view.epoch()));
      LoseRank(job, i, absl::StrCat("worker ", rank.worker_id(), " does not confirm the kill"),
               "worker_lost");
    } else if (again) {
      SendStop(job, i);
    }
  }
}

// What a gang computes once it has formed (a trial, the first step) is not bounded: nothing tells a
// long computation from one that hangs, see HearthJobStuck.
void CoreParts::CheckStart(JobState& job) {
  if (job.state() != v1::JOB_STATE_STARTING || job.record().has_stop()) {
    return;
  }
  // A rank that is out of reach has told only old phases; whether it is lost is decided elsewhere.
  for (const v1::RankRecord& rank : job.record().ranks()) {
    const WorkerState& worker = workers_.at(rank.worker_id());
    if (rank.gone() || worker.connection == 0 || Silent(worker)) {
      return;
    }
  }
  const std::string why =
      gangs_.of(job.job().job_id()).WhyNotFormed(job.record(), options_, Mono());
  if (why.empty()) {
    return;
  }
  Transition(job, v1::JOB_STATE_RECOVERING, "coordinator", kGangNotFormed, why);
  job.gang().SayWhy(kGangNotFormed, why);
  Kill(job, why);
}

bool CoreParts::HasRank(const WorkerState& worker) const {
  const auto holds = [&](const std::string& job_id) {
    const auto& ranks = jobs_.at(job_id).record().ranks();
    return std::any_of(ranks.begin(), ranks.end(), [&](const v1::RankRecord& rank) {
      return rank.worker_id() == worker.worker().worker_id();
    });
  };
  return !worker.job_id.empty() || std::any_of(jobs_.active().begin(), jobs_.active().end(), holds);
}

void CoreParts::Expire() {
  requests_.Expire(Mono(), effects_);
  workers_.Expire([this](const WorkerState& worker) { return HasRank(worker); }, Mono(), effects_);
}

}  // namespace hearth::coordinator
