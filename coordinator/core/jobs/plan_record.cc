#include "coordinator/core/jobs/plan_record.h"

#include <optional>

#include "common/spec/feasibility/measured_plan.h"
#include "common/spec/objective/objective_table.h"

namespace hearth::coordinator {

void PlanRun(JobState& job) {
  const v1::Job& view = job.job();
  std::optional<v1::JobPlan> plan;
  if (spec::Trains(view.spec())) {
    plan = spec::PlanStarted(view.spec(), view.run_info(), view.devices());
  }
  if (plan.has_value()) {
    plan->set_epoch(view.epoch());
    const v1::JobPlan& before = job.record().plan();
    // The plan is that of the epoch before: what was measured then still counts.
    if (before.has_measured() && spec::PlannedAlike(before, *plan)) {
      *plan->mutable_measured() = before.measured();
    }
  }
  job.set_plan(plan);
}

void MeasureRun(JobState& job, const v1::StepReport& step) {
  if (job.record().has_plan()) {
    spec::AddMeasured(step, step.step() - job.job().run_info().start_step(), job.plan());
  }
}

}  // namespace hearth::coordinator
