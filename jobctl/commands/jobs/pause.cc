#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"

namespace hearth::jobctl {

Action SetupPause(CLI::App& app) {
  auto targets = std::make_shared<JobTargets>();
  AddJobsToChange(app, targets->choice, Labelled::kUnderWay, "Pause");
  AddRequestId(app, targets->request_id);
  return [targets](Context& context) {
    return ChangeJobs(context, *targets, v1::PauseJobRequest(), [](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_PAUSED ? "paused" : "pausing";
    });
  };
}

}  // namespace hearth::jobctl
