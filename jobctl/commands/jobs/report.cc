#include "jobctl/report/report.h"

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/base/status_macros.h"
#include "common/time/clock.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_choice.h"

namespace hearth::jobctl {
namespace {

struct Options {
  JobChoice choice;
  std::string format;
};

absl::StatusOr<ReportFacts> Ask(Client& client, const std::string& job_id) {
  ReportFacts facts;
  v1::GetJobRequest get;
  get.set_job_id(job_id);
  HEARTH_ASSIGN_OR_RETURN(facts.job, client.Call<v1::Job>(get));
  HEARTH_ASSIGN_OR_RETURN(facts.history, LoadHistory(client, job_id));
  v1::ListEventsRequest list;
  list.set_job_id(job_id);
  HEARTH_ASSIGN_OR_RETURN(const v1::ListEventsResponse events,
                          client.Call<v1::ListEventsResponse>(list));
  facts.events.assign(events.events().begin(), events.events().end());
  HEARTH_ASSIGN_OR_RETURN(facts.version,
                          client.Call<v1::GetVersionResponse>(v1::GetVersionRequest()));
  return facts;
}

absl::StatusOr<int> Run(Context& context,
                        const Options& options,
                        const std::vector<std::string>& job_ids) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  std::vector<Report> reports;
  for (const std::string& job_id : job_ids) {
    HEARTH_ASSIGN_OR_RETURN(ReportFacts facts, Ask(*client, job_id));
    facts.prices = context.prices;
    facts.temperature_limit = context.temperature_limit;
    facts.now = Clock::Real().Now();
    reports.push_back(BuildReport(facts));
  }
  const absl::Span<const Report> all = reports;
  if (options.format == "json") {
    WriteOut(options.choice.several() ? RenderJson(all) : RenderJson(reports.front()));
  } else {
    WriteOut(options.format == "html" ? RenderHtml(all) : RenderMarkdown(all));
  }
  return kExitOk;
}

}  // namespace

Action SetupReport(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddJobChoice(app, options->choice, Labelled::kAll);
  app.add_option("-o,--output", options->format, "md (default), html, json")
      ->check(CLI::IsMember({"md", "html", "json"}));
  return [options](Context& context) {
    if (context.format == OutputFormat::kJson) {  // given before the command
      options->format = "json";
    }
    return ForChosenJobs(context, options->choice, [&](const std::vector<std::string>& job_ids) {
      return Run(context, *options, job_ids);
    });
  };
}

}  // namespace hearth::jobctl
