#include "coordinator/core/liveness/silent_workers.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hearth::coordinator {

void SilentWorkers::Check() {
  next_ = absl::InfiniteDuration();
  // While cut off nobody is lost. When contact is just back, the rest gets time to dial in.
  if (isolation_.Review()) {
    return;
  }
  std::vector<const WorkerState*> silent;
  std::optional<Liveness::Returns> returns;
  for (const auto& [id, worker] : workers_.all()) {
    // Idle and without a stream: nothing to recover and nothing to close, it is merely offline.
    if (worker.lost || (worker.job_id.empty() && worker.connection == 0)) {
      continue;
    }
    if (IsOver(worker.last_seen + liveness_.Patience(worker)) && !InQuiet(worker, returns)) {
      silent.push_back(&worker);
    }
  }
  // One by one: a loss is part of what the next one is judged by.
  for (const WorkerState* worker : silent) {
    if (worker->job_id.empty()) {
      Lose(*worker, "");  // idle: nothing to recover, it is merely not there
      continue;
    }
    const Gang& gang = gangs_.of(worker->job_id);
    if (!IsOver(gang.last_progress() + liveness_.Excused(*worker, gang.step_time()))) {
      NoteUnreachable(*worker);  // the all-reduce proves it alive
      continue;
    }
    switch (liveness_.CauseOf(*worker, workers_.all(), turn_.mono())) {
      case Liveness::Cause::kGone:
        Lose(*worker, "");
        break;
      case Liveness::Cause::kCutOff:
        isolation_.Begin(worker->last_seen);
        return;
      case Liveness::Cause::kUnclear:
        break;
    }
  }
}

void SilentWorkers::NoteUnreachable(const WorkerState& worker) {
  std::erase_if(noted_, [this](const auto& noted) {
    const WorkerState* known = workers_.Find(noted.first);
    return known == nullptr || known->last_seen != noted.second;
  });
  const std::string& name = worker.worker().worker_id();
  JobState* job = jobs_.Edit(worker.job_id);
  if (job == nullptr || !noted_.try_emplace(name, worker.last_seen).second) {
    return;
  }
  states_.Note(*job, "warning", absl::StrCat("worker:", name),
               absl::StrCat(SilentFor(worker), "; it is not lost as long as the job makes steps"));
}

std::string SilentWorkers::SilentFor(const WorkerState& worker) const {
  return absl::StrCat(
      "worker ", worker.worker().worker_id(), " is silent for ",
      absl::FormatDuration(absl::Trunc(turn_.mono() - worker.last_seen, absl::Milliseconds(100))));
}

void SilentWorkers::DeclareLost(const WorkerState& worker) {
  if (JobState* job = worker.job_id.empty() ? nullptr : jobs_.Edit(worker.job_id)) {
    states_.Note(
        *job, "update", turn_.user(),
        absl::StrCat("worker ", worker.worker().worker_id(), " declared lost by the user"));
  }
  Lose(worker, ", declared lost by the user");
}

bool SilentWorkers::IsOver(absl::Duration at) {
  if (turn_.mono() >= at) {
    return true;
  }
  next_ = std::min(next_, at);
  return false;
}

bool SilentWorkers::InQuiet(const WorkerState& worker,
                            std::optional<Liveness::Returns>& returns) const {
  const Liveness::Quiet quiet = liveness_.QuietOf(worker, turn_.mono());
  if (quiet != Liveness::Quiet::kUnlessPeersAreBack || worker.job_id.empty()) {
    return quiet != Liveness::Quiet::kOver;
  }
  std::vector<const WorkerState*> peers;
  for (const v1::RankRecord& rank : jobs_.at(worker.job_id).record().ranks()) {
    const WorkerState& peer = workers_.at(rank.worker_id());
    if (!rank.gone() && &peer != &worker) {
      peers.push_back(&peer);
    }
  }
  if (!returns.has_value()) {
    returns = liveness_.ReturnsOf(workers_.all(), turn_.mono());
  }
  return !liveness_.PeersAreBack(worker, peers, *returns, turn_.mono());
}

void SilentWorkers::Lose(const WorkerState& worker, const std::string& by) {
  workers_.MarkLost(worker);
  // Its tasks are over for us; it must say Hello before it counts again.
  workers_.Close(worker,
                 absl::UnavailableError("nothing was heard from this worker; connect again"),
                 turn_.mono(), turn_.effects());
  liveness_.NoteLoss(worker, turn_.mono());
  ends_.LoseRankOn(worker, absl::StrCat(SilentFor(worker), by));
}

}  // namespace hearth::coordinator
