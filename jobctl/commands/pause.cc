#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_actions.h"

namespace hearth::jobctl {

Action SetupPause(CLI::App& app) {
  auto request = std::make_shared<v1::PauseJobRequest>();
  app.add_option_function<std::string>(
         "job", [request](const std::string& id) { request->set_job_id(id); }, "Job id")
      ->required();
  AddRequestId(app, request);
  return [request](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    const absl::StatusOr<v1::Job> job = client->Call<v1::Job>(*request);
    if (!job.ok()) {
      return SafeToRetry(job.status(), request->request_id());
    }
    const bool rests = job->state() == v1::JOB_STATE_PAUSED;
    HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                         absl::StrCat("job/", job->job_id()),
                                         rests ? "paused" : "pausing", *job));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
