#include "coordinator/core/gangs/stragglers.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {

void Stragglers::Check() {
  const std::set<std::string> active = jobs_.active();
  for (const std::string& id : active) {
    const JobState* job = jobs_.Find(id);
    if (job->state() != v1::JOB_STATE_RUNNING) {
      continue;
    }
    for (const StragglerWatch::Change& change : gangs_.of(id).stragglers().Review(turn_.mono())) {
      Take(*jobs_.Edit(id), change);
    }
  }
}

void Stragglers::Take(JobState& job, const StragglerWatch::Change& change) {
  const std::string& worker = job.record().ranks(change.rank).worker_id();
  auto& named = job.stragglers();
  named.erase(std::remove_if(named.begin(), named.end(),
                             [&change](const v1::Straggler& s) { return s.rank() == change.rank; }),
              named.end());
  if (!change.slow) {
    states_.Note(
        job, "straggler", "coordinator",
        absl::StrFormat("rank %d on %s is no longer slower than the others", change.rank, worker));
    return;
  }
  v1::Straggler straggler;
  straggler.set_rank(change.rank);
  straggler.set_worker_id(worker);
  straggler.set_ratio(change.ratio);
  *straggler.mutable_since() = ToProto(turn_.wall());
  const auto after = std::find_if(named.begin(), named.end(), [&change](const v1::Straggler& s) {
    return s.rank() > change.rank;
  });
  const auto place = static_cast<int>(after - named.begin());
  *named.Add() = std::move(straggler);
  std::rotate(named.begin() + place, named.end() - 1, named.end());
  states_.Note(job, "straggler", "coordinator",
               absl::StrFormat("rank %d on %s is %.1f x slower than the median of the others",
                               change.rank, worker, change.ratio));
}

}  // namespace hearth::coordinator
