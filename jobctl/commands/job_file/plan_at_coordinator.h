// Plans that the coordinator makes: with what its workers see in a job's paths, and with the errors
// of plans for jobs that ended there.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/feasibility/feasibility.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/client/client.h"

namespace hearth::jobctl {

// As FeasibilityJudge, of the GPUs with these names; `job_spec` as the job file has it. Errors of
// PlanJob.
absl::StatusOr<std::vector<spec::Feasibility>> JudgeAtCoordinator(
    Client& client,
    const v1::JobSpec& job_spec,
    const std::vector<std::string>& gpus,
    const spec::FeasibilityQuery& query);

// Planned against measured, of the jobs that ended there; of all GPUs if `gpu` is empty.
absl::StatusOr<std::string> AccuracyOfEndedJobs(Client& client,
                                                const std::string& gpu,
                                                int columns);

}  // namespace hearth::jobctl
