#include "coordinator/core/workers/worker_views.h"

#include <algorithm>
#include <optional>

#include "coordinator/core/gangs/verdict.h"

namespace hearth::coordinator {

void WorkerViews::Review() {
  for (const auto& [id, worker] : workers_.all()) {
    workers_.CheckFenced(worker, turn_.mono());
    workers_.ReviewState(worker, FactsOf(worker));
  }
}

void WorkerViews::Expire() {
  std::optional<std::set<std::string_view>> named;  // by gangs; made when somebody asks
  const auto has_rank = [&](const WorkerState& worker) {
    if (!named.has_value()) {
      named = WorkersOfGangs();
    }
    return !worker.job_id.empty() || named->contains(worker.worker().worker_id());
  };
  workers_.Expire(has_rank, turn_.mono(), turn_.effects());
}

std::set<std::string_view> WorkerViews::WorkersOfGangs() const {
  std::set<std::string_view> named;
  for (const std::string& job_id : jobs_.active()) {
    for (const v1::RankRecord& rank : jobs_.at(job_id).record().ranks()) {
      named.insert(rank.worker_id());
    }
  }
  return named;
}

void WorkerViews::Flush() {
  workers_.Flush([this](const WorkerState& worker) { return FactsOf(worker); }, turn_.effects());
}

bool WorkerViews::HasRank(const WorkerState& worker) const {
  const auto holds = [&](const std::string& job_id) {
    const auto& ranks = jobs_.at(job_id).record().ranks();
    return std::any_of(ranks.begin(), ranks.end(), [&](const v1::RankRecord& rank) {
      return rank.worker_id() == worker.worker().worker_id();
    });
  };
  return !worker.job_id.empty() || std::any_of(jobs_.active().begin(), jobs_.active().end(), holds);
}

Workers::Facts WorkerViews::FactsOf(const WorkerState& worker) const {
  Workers::Facts facts;
  if (!worker.job_id.empty()) {
    const JobState& job = jobs_.at(worker.job_id);
    facts.epoch = job.job().epoch();
    facts.rank = RankOf(job.record(), facts.epoch, worker.worker());
  }
  facts.silent = liveness_.JudgesSilence(turn_.mono()) && liveness_.Silent(worker, turn_.mono());
  return facts;
}

}  // namespace hearth::coordinator
