// The time in which the coordinator assumes that it is cut off from its workers and declares none
// lost: how it begins and ends, and what its jobs are told. Owns nothing; Liveness judges.
#pragma once

#include <string>

#include "coordinator/core/core.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class Isolation {
 public:
  // All that is passed in outlives this.
  Isolation(const Turn& turn,
            const CoreOptions& options,
            const Workers& workers,
            Liveness& liveness,
            Jobs& jobs,
            JobStates& states,
            PlanTimer& plan)
      : turn_(turn),
        options_(options),
        workers_(workers),
        liveness_(liveness),
        jobs_(jobs),
        states_(states),
        plan_(plan) {}

  // In a Tick. True: no worker is declared lost in this Tick.
  bool Review();
  // `silent_since`: the last word of the worker whose silence showed it.
  void Begin(absl::Duration silent_since);
  // A user says that those who are silent are gone.
  void EndByUser();

 private:
  // Tells the jobs that suffer from it, and that it is over.
  void Note();
  void NoteEnd(const std::string& actor, const std::string& why);

  const Turn& turn_;
  const CoreOptions& options_;
  const Workers& workers_;
  Liveness& liveness_;
  Jobs& jobs_;
  JobStates& states_;
  PlanTimer& plan_;
};

}  // namespace hearth::coordinator
