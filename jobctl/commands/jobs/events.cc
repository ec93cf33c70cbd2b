#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "common/base/status_macros.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

Action SetupEvents(CLI::App& app) {
  auto job_id = std::make_shared<std::string>();
  app.add_option("job", *job_id, "Job id")->required();
  return [job_id](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    v1::ListEventsRequest request;
    request.set_job_id(*job_id);
    HEARTH_ASSIGN_OR_RETURN(const v1::ListEventsResponse response,
                            client->Call<v1::ListEventsResponse>(request));
    HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, response));
    if (printed) {
      return kExitOk;
    }
    WriteOut(RenderEvents({response.events().begin(), response.events().end()},
                          context.format == OutputFormat::kWide, FitColumns()));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
