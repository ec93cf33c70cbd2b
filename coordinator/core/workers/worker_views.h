// What a worker's record shows of things that other parts know: the epoch and rank of its task, and
// whether it is silent. In a Tick, makes workers unhealthy whose fenced tasks do not end, and
// forgets those that have been away for long. Owns nothing.
#pragma once

#include <set>
#include <string_view>

#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class WorkerViews {
 public:
  // All that is passed in outlives this.
  WorkerViews(Turn& turn, Workers& workers, const Jobs& jobs, const Liveness& liveness)
      : turn_(turn), workers_(workers), jobs_(jobs), liveness_(liveness) {}

  // Brings the derived fields of its record up to date.
  void Update(const WorkerState& worker) { workers_.UpdateView(worker, FactsOf(worker)); }
  // In a Tick, for all: makes those unhealthy whose fenced tasks do not end (Workers::CheckFenced),
  // and updates states that time alone changes.
  void Review();
  // Forgets the workers that have been away for long and have no rank.
  void Expire();
  // Hands out the rows that were marked, brought up to date.
  void Flush();
  // It runs a rank, or the record of a gang that is not over names it.
  bool HasRank(const WorkerState& worker) const;

 private:
  // Workers named in the records of gangs that are not over.
  std::set<std::string_view> WorkersOfGangs() const;
  Workers::Facts FactsOf(const WorkerState& worker) const;

  Turn& turn_;
  Workers& workers_;
  const Jobs& jobs_;
  const Liveness& liveness_;
};

}  // namespace hearth::coordinator
