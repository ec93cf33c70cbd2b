#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "jobctl/client/history.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"
#include "jobctl/report/cost.h"
#include "jobctl/views/output/columns.h"

namespace hearth::jobctl {

namespace {

struct Options {
  JobChoice choice;
  bool spec = false;
  std::string columns;
};

absl::StatusOr<int> Run(Context& context,
                        const Options& options,
                        const std::vector<std::string>& job_ids) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<JobColumn> columns, ParseJobColumns(options.columns));
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  HEARTH_ASSIGN_OR_RETURN(const v1::ListJobsResponse all, GetJobs(*client, job_ids));
  const std::vector<v1::Job> jobs(all.jobs().begin(), all.jobs().end());
  const v1::Job& job = jobs.front();
  if (options.spec) {
    WriteOut(config::ToYaml(job.spec()));
    return kExitOk;
  }
  HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintColumns(context.format, columns, jobs));
  if (printed) {
    return kExitOk;
  }
  if (options.choice.several()) {
    HEARTH_RETURN_IF_ERROR(PrintJobs(context.format, jobs, all));
    return kExitOk;
  }
  std::vector<ExtraCell> extra;
  const bool table =
      context.format == OutputFormat::kTable || context.format == OutputFormat::kWide;
  if (table && HasUsage(job, context.prices)) {
    HEARTH_ASSIGN_OR_RETURN(const History history, LoadHistory(*client, job.job_id()));
    extra = UsageCells(UsageOf(job, history, context.prices), context.prices.currency);
  }
  HEARTH_RETURN_IF_ERROR(PrintJobs(context.format, jobs, job, extra));
  return kExitOk;
}

}  // namespace

Action SetupGet(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddJobChoice(app, options->choice, Labelled::kAll);
  app.add_flag("--spec", options->spec,
               "Print the job file with all defaults, in the form that submit takes (one job)");
  app.add_option(
      "--columns", options->columns,
      "Show these fields of jobs and job files, e.g. job_id,step,optimizer.lr,labels.team");
  return [options](Context& context) -> absl::StatusOr<int> {
    if (options->spec && options->choice.several()) {
      WriteErr("error: --spec is for one job\n");
      return kExitUsage;
    }
    if (options->spec && context.format.kind() != OutputFormat::kTable &&
        context.format.kind() != OutputFormat::kYaml) {
      WriteErr("error: --spec prints the job file, which is YAML; leave -o out\n");
      return kExitUsage;
    }
    return ForChosenJobs(context, options->choice, [&](const std::vector<std::string>& job_ids) {
      return Run(context, *options, job_ids);
    });
  };
}

}  // namespace hearth::jobctl
