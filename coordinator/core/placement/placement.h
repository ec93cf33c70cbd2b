// Carries out the scheduler's decisions: jobs start, wait, or give their workers to other jobs.
// Owns nothing but the moment of the start.
#pragma once

#include "coordinator/core/gangs/gang_ends.h"
#include "coordinator/core/gangs/gang_starts.h"
#include "coordinator/core/jobs/inspections.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/placement/cluster_views.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/turn.h"
#include "coordinator/scheduler/scheduler.h"

namespace hearth::coordinator {

// Not thread-safe.
class Placement {
 public:
  // All that is passed in outlives this.
  Placement(Turn& turn,
            Jobs& jobs,
            const ClusterViews& clusters,
            JobStates& states,
            GangStarts& starts,
            GangEnds& ends,
            Inspections& inspections,
            PlanTimer& plan)
      : turn_(turn),
        jobs_(jobs),
        clusters_(clusters),
        states_(states),
        starts_(starts),
        ends_(ends),
        inspections_(inspections),
        plan_(plan),
        start_time_(turn.mono()) {}

  // In a Tick: makes a plan if somebody asked for one, or it is time; tells waiting jobs why they
  // wait.
  void PlanIfDue();

 private:
  void Schedule();
  void Start(const StartDecision& decision);
  void Wait(const WaitDecision& decision);
  // Why it waits, for readers.
  void Say(JobState& job, const WaitText& text);

  Turn& turn_;
  Jobs& jobs_;
  const ClusterViews& clusters_;
  JobStates& states_;
  GangStarts& starts_;
  GangEnds& ends_;
  Inspections& inspections_;
  PlanTimer& plan_;
  const absl::Duration start_time_;  // monotonic
};

}  // namespace hearth::coordinator
