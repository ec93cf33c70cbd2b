// What is planned for a job when its rank 0 has started, and what its steps then measure, so that
// plans can be judged by what became of them. Owns nothing; JobRecord.plan is changed only here.
#pragma once

#include "coordinator/core/jobs/jobs.h"

namespace hearth::coordinator {

// Plans the job as it runs, for the epoch that has begun. If an earlier epoch had the same plan,
// its sums continue.
void PlanRun(JobState& job);

// Adds the step to what is measured, if there is a plan.
void MeasureRun(JobState& job, const v1::StepReport& step);

}  // namespace hearth::coordinator
