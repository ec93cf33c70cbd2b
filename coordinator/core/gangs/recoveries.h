// A job's recovery (v1::Recovery): from which loss, and how long it took. Owns nothing; the field
// is set only here.
#pragma once

#include <cstdint>

#include "coordinator/core/gangs/verdict.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class Recoveries {
 public:
  // All that is passed in outlives this.
  Recoveries(const Turn& turn, const Workers& workers, Jobs& jobs, JobStates& states)
      : turn_(turn), workers_(workers), jobs_(jobs), states_(states) {}

  // Writes down whose loss the job recovers from. Several losses before the next step are one
  // recovery, from the first of them.
  void NoteFault(JobState& job, const Verdict& verdict);
  // The first step of an epoch was reported: a recovery that is under way is over.
  void NoteRecovered(JobState& job, int64_t step);

 private:
  // How long ago that was: by the monotonic clock, also over restarts of the coordinator; by the
  // wall clock when its machine was booted meanwhile.
  absl::Duration Age(const v1::Moment& moment, const google::protobuf::Timestamp& time) const;

  const Turn& turn_;
  const Workers& workers_;
  Jobs& jobs_;
  JobStates& states_;
};

}  // namespace hearth::coordinator
