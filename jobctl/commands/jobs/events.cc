#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/base/status_macros.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_choice.h"

namespace hearth::jobctl {
namespace {

absl::StatusOr<int> Run(Context& context, const std::vector<std::string>& job_ids) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::ListEventsResponse all;
  for (const std::string& job_id : job_ids) {
    v1::ListEventsRequest request;
    request.set_job_id(job_id);
    HEARTH_ASSIGN_OR_RETURN(const v1::ListEventsResponse response,
                            client->Call<v1::ListEventsResponse>(request));
    all.MergeFrom(response);
  }
  // The order in which they happened, even if the coordinator's clock was set back.
  std::stable_sort(
      all.mutable_events()->pointer_begin(), all.mutable_events()->pointer_end(),
      [](const v1::JobEvent* a, const v1::JobEvent* b) { return a->revision() < b->revision(); });
  HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, all));
  if (!printed) {
    WriteOut(RenderEvents({all.events().begin(), all.events().end()},
                          context.format == OutputFormat::kWide, FitColumns()));
  }
  return kExitOk;
}

}  // namespace

Action SetupEvents(CLI::App& app) {
  auto choice = std::make_shared<JobChoice>();
  AddJobChoice(app, *choice, Labelled::kAll);
  return [choice](Context& context) {
    return ForChosenJobs(context, *choice, [&context](const std::vector<std::string>& job_ids) {
      return Run(context, job_ids);
    });
  };
}

}  // namespace hearth::jobctl
