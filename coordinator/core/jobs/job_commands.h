// What users ask of jobs: create, update, cancel, pause, resume. Owns nothing.
#pragma once

#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/gangs/gang_ends.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/jobs/start_conditions.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// Not thread-safe.
class JobCommands {
 public:
  // All that is passed in outlives this.
  JobCommands(Turn& turn,
              const CoreOptions& options,
              Jobs& jobs,
              JobStates& states,
              GangEnds& ends,
              StartConditions& conditions,
              PlanTimer& plan)
      : turn_(turn),
        options_(options),
        jobs_(jobs),
        states_(states),
        ends_(ends),
        conditions_(conditions),
        plan_(plan) {}

  static std::vector<CommandRow> Rows();

 private:
  void Create(const CreateJob& command);
  // The id that the job gets.
  std::string IdFor(const CreateJob& command) const;
  void Update(const v1::UpdateJobRequest& request);
  void Cancel(const v1::CancelJobRequest& request);
  void Pause(const v1::PauseJobRequest& request);
  void Resume(const ResumeJob& command);
  void AddNote(const v1::AddNoteRequest& request);
  // A job that has stopped is QUEUED again, with its new spec if the command brings one. On error
  // nothing has changed.
  absl::Status Requeue(JobState& job, const ResumeJob& command);
  static absl::Status CheckResume(const JobState& job, const ResumeJob& command);

  Turn& turn_;
  const CoreOptions& options_;
  Jobs& jobs_;
  JobStates& states_;
  GangEnds& ends_;
  StartConditions& conditions_;
  PlanTimer& plan_;
};

}  // namespace hearth::coordinator
