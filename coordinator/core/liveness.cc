// Silence and deadlines: all that follows from time passing.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/impl.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kPlanEvery = absl::Seconds(5);
constexpr size_t kLongQueue = 500;
constexpr absl::Duration kLongQueuePause = absl::Milliseconds(200);
// How long a loss may be part of a silence that others join.
constexpr absl::Duration kRecentLoss = absl::Seconds(20);

}  // namespace

bool Core::Impl::Silent(const WorkerState& worker) const {
  return Mono() - worker.last_seen >= options_.silence;
}

absl::Duration Core::Impl::Patience(const WorkerState& worker) const {
  return worker.connection == 0 ? std::min(options_.silence, options_.disconnect_silence)
                                : options_.silence;
}

void Core::Impl::On(const Tick&) {
  last_tick_ = Mono();
  CheckSilence();
  AskForFolders();
  const std::set<std::string> active = active_;
  for (const std::string& id : active) {
    CheckDeadlines(*Find(id));
    CheckStart(*Find(id));
    CheckKills(*Find(id));
  }
  for (auto& [id, worker] : workers_) {
    CheckForeign(worker);
    const v1::WorkerState before = worker.worker().state();
    UpdateWorkerView(worker);
    if (worker.worker().state() != before) {
      MarkWorker(worker, false);
      plan_due_ = true;
    }
  }
  Expire();
  if (PlanDueNow() || Mono() >= next_plan_) {
    plan_due_ = false;
    next_plan_ = Mono() + kPlanEvery;
    if (waiting_.size() > kLongQueue) {
      plan_not_before_ = Mono() + kLongQueuePause;
    }
    effects_.planned = true;
    Schedule();
  }
}

void Core::Impl::CheckSilence() {
  if (isolated_) {
    if (Mono() >= isolated_until_) {
      isolation_mark_ = Mono();
      EndIsolation("coordinator", absl::StrCat("nobody was heard for ",
                                               absl::FormatDuration(options_.isolation_grace),
                                               ": who is silent counts as lost from now on"));
    } else if (ContactIsBack()) {
      EndIsolation("coordinator", "contact with the workers is back");
      // The rest may be about to dial in.
      quiet_from_ = Mono();
      quiet_until_ = Mono() + std::min(options_.reattach_prompt, options_.reattach_grace);
      return;
    } else {
      NoteIsolation();
      return;
    }
  }
  std::vector<WorkerState*> silent;
  for (auto& [id, worker] : workers_) {
    if (!worker.lost && Mono() - worker.last_seen >= Patience(worker) && !InQuiet(worker) &&
        (!worker.job_id.empty() || worker.connection != 0)) {
      silent.push_back(&worker);
    }
  }
  for (WorkerState* worker : silent) {
    if (worker->job_id.empty()) {
      Lose(*worker, "");  // idle: nothing to recover, it is merely not there
      continue;
    }
    const JobState& job = *Find(worker->job_id);
    if (Mono() - std::max(worker->last_seen, job.last_progress) < Patience(*worker)) {
      continue;  // UNREACHABLE: the all-reduce proves it alive
    }
    switch (CauseOf(*worker)) {
      case Cause::kGone:
        Lose(*worker, "");
        break;
      case Cause::kCutOff:
        BeginIsolation();
        return;
      case Cause::kUnclear:
        break;
    }
  }
}

void Core::Impl::Lose(WorkerState& worker, const std::string& by) {
  worker.lost = true;
  const std::string name = worker.worker().worker_id();
  // Its tasks are over for us; it must say Hello before it counts again.
  Close(worker, absl::UnavailableError("nothing was heard from this worker; connect again"));
  MarkWorker(worker, false);
  recent_losses_.push_back({name, worker.last_seen, worker.worker().host()});
  while (Mono() - recent_losses_.front().last_seen > kRecentLoss && recent_losses_.size() > 1) {
    recent_losses_.pop_front();
  }
  JobState* job = worker.job_id.empty() ? nullptr : Find(worker.job_id);
  if (job != nullptr) {
    LoseRank(*job, RankOf(*job, job->job().epoch(), worker),
             absl::StrCat("worker ", name, " is silent for ",
                          absl::FormatDuration(
                              absl::Trunc(Mono() - worker.last_seen, absl::Milliseconds(100))),
                          by),
             "worker_lost");
  }
}

void Core::Impl::CheckDeadlines(JobState& job) {
  if (Mono() >= job.stop_deadline && !job.record.stop().kill() && !ReadyToRestart(job)) {
    const std::string why = absl::StrCat("grace of ", absl::FormatDuration(Grace(job)), " is over");
    Note(job, "update", "coordinator", absl::StrCat(why, "; killing the ranks that are left"));
    Kill(job, why);
  }
  const v1::ResourceSpec& spec = job.job().spec().resources();
  if (job.state() == v1::JOB_STATE_RUNNING && spec.has_time_limit() && !job.record.has_stop()) {
    const double limit =
        static_cast<double>(spec.time_limit().seconds()) + 1e-9 * spec.time_limit().nanos();
    const double used =
        job.record.running_base() + absl::ToDoubleSeconds(Mono() - job.running_since);
    if (used >= limit) {
      const std::string reason = absl::StrCat("resources.time_limit of ", limit, " s is used up");
      Stop(job, v1::JOB_STATE_CANCELLING, v1::CONTROL_BIT_STOP, "coordinator", "time_limit", reason,
           false);
      if (job.state() == v1::JOB_STATE_CANCELLING) {
        job.record.mutable_stop()->set_fail(true);
      }
    }
  }
}

void Core::Impl::CheckKills(JobState& job) {
  if (!job.record.stop().kill() || !HasGang(job.state())) {
    return;
  }
  const bool again = Mono() >= job.kill_again;
  const bool over = Mono() - job.kill_time >= options_.kill_timeout;
  for (int i = 0; i < job.record.ranks_size() && HasGang(job.state()); ++i) {
    const v1::RankRecord& rank = job.record.ranks(i);
    WorkerState& worker = *FindWorker(rank.worker_id());
    if (rank.gone() || worker.connection == 0) {
      continue;
    }
    if (over) {
      // The worker is alive but cannot prove the process gone. The job must not hang for it; the
      // worker is not used again.
      worker.record.set_unhealthy(absl::StrCat("does not confirm the kill of ", job.job().job_id(),
                                               " epoch ", job.job().epoch()));
      worker.foreign[{job.job().job_id(), job.job().epoch()}] = Mono();
      MarkWorker(worker, true);
      LoseRank(job, i, absl::StrCat("worker ", rank.worker_id(), " does not confirm the kill"),
               "worker_lost");
    } else if (again) {
      SendStop(job, i);
    }
  }
}

void Core::Impl::CheckForeign(WorkerState& worker) {
  for (const auto& [task, since] : worker.foreign) {
    if (worker.connection != 0 && worker.record.unhealthy().empty() &&
        Mono() - since >= options_.kill_timeout) {
      worker.record.set_unhealthy(
          absl::StrCat("does not confirm the kill of ", task.first, " epoch ", task.second));
      MarkWorker(worker, true);
      plan_due_ = true;
    }
  }
}

bool Core::Impl::HasRank(const WorkerState& worker) const {
  const auto holds = [&](const std::string& job_id) {
    const auto& ranks = jobs_.at(job_id).record.ranks();
    return std::any_of(ranks.begin(), ranks.end(), [&](const v1::RankRecord& rank) {
      return rank.worker_id() == worker.worker().worker_id();
    });
  };
  return !worker.job_id.empty() || std::any_of(active_.begin(), active_.end(), holds);
}

void Core::Impl::Expire() {
  while (!request_order_.empty()) {
    auto oldest = requests_.find(request_order_.front());
    if (oldest != requests_.end()) {
      if (requests_.size() <= options_.max_requests &&
          now_.wall - FromProto(oldest->second.time()) < options_.request_ttl) {
        break;
      }
      effects_.request_deletes.push_back(oldest->first);
      requests_.erase(oldest);
    }
    request_order_.pop_front();
  }
  for (auto it = workers_.begin(); it != workers_.end();) {
    const WorkerState& worker = it->second;
    if (worker.connection == 0 && !worker.worker().cordoned() &&
        worker.record.unhealthy().empty() && Mono() - worker.gone_since >= options_.worker_ttl &&
        !HasRank(worker)) {
      effects_.worker_deletes.push_back(it->first);
      dirty_workers_.erase(it->first);
      it = workers_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace hearth::coordinator
