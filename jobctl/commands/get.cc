#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "jobctl/client/history.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/cost.h"

namespace hearth::jobctl {

Action SetupGet(CLI::App& app) {
  auto job_id = std::make_shared<std::string>();
  auto spec = std::make_shared<bool>(false);
  app.add_option("job", *job_id, "Job id")->required();
  app.add_flag("--spec", *spec,
               "Print the job file with all defaults, in the form that submit takes");
  return [job_id, spec](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    v1::GetJobRequest request;
    request.set_job_id(*job_id);
    HEARTH_ASSIGN_OR_RETURN(const v1::Job job, client->Call<v1::Job>(request));
    if (*spec) {
      WriteOut(config::ToYaml(job.spec()));
      return kExitOk;
    }
    std::vector<ExtraCell> extra;
    const bool table =
        context.format == OutputFormat::kTable || context.format == OutputFormat::kWide;
    if (table && HasUsage(job, context.prices)) {
      HEARTH_ASSIGN_OR_RETURN(const History history, LoadHistory(*client, *job_id));
      extra = UsageCells(UsageOf(job, history, context.prices), context.prices.currency);
    }
    HEARTH_RETURN_IF_ERROR(PrintJobs(context.format, {job}, job, extra));
    return kExitOk;
  };
}

}  // namespace hearth::jobctl
