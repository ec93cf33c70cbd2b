#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/command.h"

namespace hearth::jobctl {

namespace {

struct Options {
  v1::DeleteJobRequest request;
  bool yes = false;
};

// Asks on a terminal; elsewhere --yes is required.
absl::Status Confirm(const std::string& job_id) {
  if (isatty(STDIN_FILENO) == 0) {
    return absl::FailedPreconditionError(
        "delete removes the job, its history and log; without a terminal it needs --yes");
  }
  WriteErr(absl::StrCat("Delete job/", job_id, " with its history and log? [y/N] "));
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "y" && answer != "yes") {
    return absl::CancelledError("nothing deleted");
  }
  return absl::OkStatus();
}

}  // namespace

Action SetupDelete(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option_function<std::string>(
         "job", [options](const std::string& id) { options->request.set_job_id(id); }, "Job id")
      ->required();
  app.add_flag("-y,--yes", options->yes, "Do not ask");
  return [options](Context& context) -> absl::StatusOr<int> {
    const std::string job_id = options->request.job_id();
    if (!options->yes) {
      HEARTH_RETURN_IF_ERROR(Confirm(job_id));
    }
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const v1::DeleteJobResponse response,
                            client->DeleteJob(options->request));
    HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                         absl::StrCat("job/", job_id), "deleted", response));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
