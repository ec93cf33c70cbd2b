#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
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
    Table table({"TIME", "TYPE", "ACTOR", "FROM", "TO", "EPOCH", "STEP", "WHAT"});
    for (const v1::JobEvent& event : response.events()) {
      const bool moved = event.to_state() != v1::JOB_STATE_UNSPECIFIED;
      table.Add({TimeText(event.time()), event.type(), event.actor(),
                 moved && event.from_state() != v1::JOB_STATE_UNSPECIFIED
                     ? StateName(event.from_state())
                     : "-",
                 moved ? StateName(event.to_state()) : "-", absl::StrCat(event.epoch()),
                 absl::StrCat(event.step()), event.message()});
    }
    WriteOut(table.Render(FitColumns()));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
