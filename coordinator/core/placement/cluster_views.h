// The cluster as the scheduler sees it. Owns nothing and changes nothing.
#pragma once

#include "coordinator/core/core.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"
#include "coordinator/scheduler/scheduler.h"

namespace hearth::coordinator {

// Not thread-safe.
class ClusterViews {
 public:
  // All that is passed in outlives this.
  ClusterViews(const Turn& turn,
               const CoreOptions& options,
               const Workers& workers,
               const Jobs& jobs,
               const Gangs& gangs,
               const Liveness& liveness)
      : turn_(turn),
        options_(options),
        workers_(workers),
        jobs_(jobs),
        gangs_(gangs),
        liveness_(liveness) {}

  // Points into the records: valid until one changes.
  ClusterView View() const;
  // All workers that are known are connected.
  bool EverybodyIsBack() const;

 private:
  void AddJob(const JobState& job, JobPhase phase, ClusterView& view) const;
  bool Usable(const WorkerState& worker) const;

  const Turn& turn_;
  const CoreOptions& options_;
  const Workers& workers_;
  const Jobs& jobs_;
  const Gangs& gangs_;
  const Liveness& liveness_;
};

}  // namespace hearth::coordinator
