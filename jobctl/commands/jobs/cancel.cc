#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"

namespace hearth::jobctl {

Action SetupCancel(CLI::App& app) {
  auto targets = std::make_shared<JobTargets>();
  auto now = std::make_shared<bool>(false);
  AddJobsToChange(app, targets->choice, Labelled::kOpen, "Cancel");
  AddRequestId(app, targets->request_id);
  app.add_flag("--now", *now, "Kill at once, without a checkpoint");
  return [targets, now](Context& context) {
    v1::CancelJobRequest request;
    request.set_now(*now);
    return ChangeJobs(context, *targets, request, [](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_CANCELLED ? "cancelled" : "cancelling";
    });
  };
}

}  // namespace hearth::jobctl
