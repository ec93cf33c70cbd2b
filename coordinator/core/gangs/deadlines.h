// Acts on what is overdue in gangs: grace periods and time limits that are over, starts that take
// too long, kills that are not confirmed. Owns nothing; the clocks are in Gang.
#pragma once

#include "coordinator/core/core.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/gangs/gang_ends.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class Deadlines {
 public:
  // All that is passed in outlives this.
  Deadlines(const Turn& turn,
            const CoreOptions& options,
            Workers& workers,
            const Liveness& liveness,
            Jobs& jobs,
            const Gangs& gangs,
            JobStates& states,
            GangEnds& ends)
      : turn_(turn),
        options_(options),
        workers_(workers),
        liveness_(liveness),
        jobs_(jobs),
        gangs_(gangs),
        states_(states),
        ends_(ends) {}

  // In a Tick, for all jobs that have a gang.
  void Check();

 private:
  void CheckStop(JobState& job);
  // Ends a gang that takes too long to its first step; it starts again as the next epoch.
  void CheckStart(JobState& job);
  void CheckKills(JobState& job);

  const Turn& turn_;
  const CoreOptions& options_;
  Workers& workers_;
  const Liveness& liveness_;
  Jobs& jobs_;
  const Gangs& gangs_;
  JobStates& states_;
  GangEnds& ends_;
};

}  // namespace hearth::coordinator
