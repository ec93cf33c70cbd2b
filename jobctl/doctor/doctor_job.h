// Why a job is slow: doctor's findings about one job. Pure: the facts come as arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hearth/v1/job.pb.h"
#include "hearth/v1/plan.pb.h"
#include "hearth/v1/worker.pb.h"
#include "jobctl/doctor/finding.h"

namespace hearth::jobctl {

struct JobFacts {
  v1::Job job;
  std::vector<v1::Worker> workers;  // all that the coordinator knows
  // The last steps in order, without discarded ones; at most kDoctorSteps.
  std::vector<v1::StepReport> steps;
  // What was planned for the job as it runs; absent = nothing.
  std::optional<v1::JobPlan> plan;
};
inline constexpr int kDoctorSteps = 500;

// Plain sentences with numbers, the verdict first (state or speed); ends with a note when nothing
// stands out.
Findings DiagnoseJob(const JobFacts& facts);

}  // namespace hearth::jobctl
