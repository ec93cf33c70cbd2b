#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_actions.h"

namespace hearth::jobctl {

Action SetupCancel(CLI::App& app) {
  auto request = std::make_shared<v1::CancelJobRequest>();
  AddJobId(app, request);
  AddRequestId(app, request);
  app.add_flag_callback(
      "--now", [request] { request->set_now(true); }, "Kill at once, without a checkpoint");
  return [request](Context& context) {
    return ChangeJob(context, *request, [](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_CANCELLED ? "cancelled" : "cancelling";
    });
  };
}

}  // namespace hearth::jobctl
