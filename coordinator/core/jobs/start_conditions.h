// What jobs wait for apart from workers: a time, or the success of another job (spec.start). Owns
// only a flag: whether it has checked the jobs that a restart found.
//
// A start time is one of the wall clock, so only that clock decides whether it has come: they are
// compared in every Tick. If the clock is set forward past the start time, the job starts; if it is
// set back, the job waits longer. A condition that was met is recorded with the job
// (JobRecord.start), so no later jump makes the job wait again. Its place in the queue is that of a
// job that was submitted at that moment, by the queue's own clock.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// The value of JobRecord.start for a job that is submitted or resumed: which conditions of `start`
// are met now. `before`: which were met before. Errors: kInvalidArgument BAD_START: there is no job
// start.after, or it waits for this one; kFailedPrecondition AFTER_ENDED: it has failed or was
// cancelled.
absl::StatusOr<v1::StartRecord> StartRecordOf(const v1::StartSpec& start,
                                              const std::string& job_id,
                                              const v1::StartRecord& before,
                                              const Jobs& jobs,
                                              absl::Time now);

// Not thread-safe.
class StartConditions {
 public:
  // All that is passed in outlives this.
  StartConditions(const Turn& turn, Jobs& jobs, JobStates& states)
      : turn_(turn), jobs_(jobs), states_(states) {}

  // In a Tick, and before a job that has succeeded is resumed: releases the jobs whose conditions
  // are met, cancels those that would wait for ever, and tells the others what they wait for.
  void Check();

 private:
  void TakeTimes();
  void TakeEnd(const std::string& job_id, const EndOfJob& end);
  void LetGo(JobState& job, const v1::StartRecord& start, const std::string& why);
  void Say(JobState& job);

  const Turn& turn_;
  Jobs& jobs_;
  JobStates& states_;
  bool restored_looked_at_ = false;
};

}  // namespace hearth::coordinator
