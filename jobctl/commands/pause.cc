#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_actions.h"

namespace hearth::jobctl {

Action SetupPause(CLI::App& app) {
  auto request = std::make_shared<v1::PauseJobRequest>();
  AddJobId(app, request);
  AddRequestId(app, request);
  return [request](Context& context) {
    return ChangeJob(context, *request, [](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_PAUSED ? "paused" : "pausing";
    });
  };
}

}  // namespace hearth::jobctl
