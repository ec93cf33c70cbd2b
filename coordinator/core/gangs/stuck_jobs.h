// Finds jobs that count as running but make no step for long: in the job's view, and once as an
// event. Owns nothing; what it judges by is Gang's.
#pragma once

#include "coordinator/core/core.h"
#include "coordinator/core/gangs/gang.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// Not thread-safe.
class StuckJobs {
 public:
  // All that is passed in outlives this.
  StuckJobs(
      const Turn& turn, const CoreOptions& options, Jobs& jobs, Gangs& gangs, JobStates& states)
      : turn_(turn), options_(options), jobs_(jobs), gangs_(gangs), states_(states) {}

  // In a Tick, for all jobs that run. After a restart of the coordinator a job has the whole time
  // again; one that was found stuck before is not told of twice.
  void Check();

 private:
  const Turn& turn_;
  const CoreOptions& options_;
  Jobs& jobs_;
  Gangs& gangs_;
  JobStates& states_;
};

}  // namespace hearth::coordinator
