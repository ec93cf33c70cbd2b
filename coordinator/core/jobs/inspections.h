// The check of a job's paths on a worker, before its first start. The service asks the worker and
// comes back with the answer. Owns nothing; JobState::inspect_until is changed only here.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/placement/plan_timer.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class Inspections {
 public:
  // All that is passed in outlives this.
  Inspections(Turn& turn,
              const Workers& workers,
              Jobs& jobs,
              const Liveness& liveness,
              JobStates& states,
              PlanTimer& plan)
      : turn_(turn),
        workers_(workers),
        jobs_(jobs),
        liveness_(liveness),
        states_(states),
        plan_(plan) {}

  static std::vector<CommandRow> Rows();

  // The job's paths are to be checked on this connected worker, unless an answer is awaited.
  void Ask(JobState& job, const std::string& worker_id);
  // A connected, healthy worker with the spec's device kind and labels; null = there is none.
  const WorkerState* FindWorker(const v1::JobSpec& spec) const;

 private:
  void Done(const InspectionDone& command);

  Turn& turn_;
  const Workers& workers_;
  Jobs& jobs_;
  const Liveness& liveness_;
  JobStates& states_;
  PlanTimer& plan_;
};

}  // namespace hearth::coordinator
