// The plan of a job as it runs on its GPUs, and what is measured there.
#pragma once

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/plan.pb.h"

namespace hearth::spec {

// `job_spec` as FeasibilityJudge; `run` is what rank 0 has resolved, `devices` those of the gang.
// Where there is no plan, JobPlan.unknown says why. nullopt: the job does not run on GPUs. Takes a
// millisecond or so. Sets neither job_id nor epoch.
std::optional<v1::JobPlan> PlanStarted(const v1::JobSpec& job_spec,
                                       const v1::RunInfo& run,
                                       const v1::JobDevices& devices);

// Adds a step of the planned job, the `number`-th since the gang's start, to what is measured.
void AddMeasured(const v1::StepReport& step, int64_t number, v1::JobPlan& plan);

// Tokens a second of all GPUs; watts of a GPU. 0 = not measured.
double MeasuredTokS(const v1::JobPlan& plan);
double MeasuredWatts(const v1::JobPlan& plan);

// Whether planned and measured figures are both known, so that the run tells how good plans are.
bool IsComparable(const v1::JobPlan& plan);

// Whether both were planned for the same work on the same GPUs with the same result.
bool PlannedAlike(const v1::JobPlan& a, const v1::JobPlan& b);

}  // namespace hearth::spec
