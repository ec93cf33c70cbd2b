// Decides what happens to the tasks that a Hello lists: some go on, some are told to end or to be
// forgotten, and those that are missing are lost or started again. Owns nothing.
#pragma once

#include "coordinator/core/core.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/gangs/gang_ends.h"
#include "coordinator/core/gangs/gang_starts.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class HelloTasks {
 public:
  // All that is passed in outlives this.
  HelloTasks(Turn& turn,
             const CoreOptions& options,
             Workers& workers,
             Jobs& jobs,
             Gangs& gangs,
             JobStates& states,
             GangStarts& starts,
             GangEnds& ends)
      : turn_(turn),
        options_(options),
        workers_(workers),
        jobs_(jobs),
        gangs_(gangs),
        states_(states),
        starts_(starts),
        ends_(ends) {}

  // Sends Welcome, and what follows for each task, to a worker that has just connected.
  void Reconcile(const WorkerState& worker, const v1::Hello& hello);

 private:
  // `status` is null when the Hello does not list the task of the job's rank.
  void ReconcileRank(const WorkerState& worker,
                     JobState& job,
                     int rank,
                     const v1::TaskStatus* status);

  Turn& turn_;
  const CoreOptions& options_;
  Workers& workers_;
  Jobs& jobs_;
  Gangs& gangs_;
  JobStates& states_;
  GangStarts& starts_;
  GangEnds& ends_;
};

}  // namespace hearth::coordinator
