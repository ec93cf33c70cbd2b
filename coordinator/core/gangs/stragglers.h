// Names ranks that the others of their gang wait for: in the job's view and as events. Owns
// nothing; what it judges by is Gang's.
#pragma once

#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// Not thread-safe.
class Stragglers {
 public:
  // All that is passed in outlives this.
  Stragglers(const Turn& turn, Jobs& jobs, Gangs& gangs, JobStates& states)
      : turn_(turn), jobs_(jobs), gangs_(gangs), states_(states) {}

  // In a Tick, for all jobs that run.
  void Check();

 private:
  void Take(JobState& job, const StragglerWatch::Change& change);

  const Turn& turn_;
  Jobs& jobs_;
  Gangs& gangs_;
  JobStates& states_;
};

}  // namespace hearth::coordinator
