#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {
namespace {

constexpr int kMaxPage = 1000;

struct Options {
  std::string filter;
  std::string states;
  std::string owner;
  std::vector<std::string> labels;
  int limit = 50;
};

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::ListJobsRequest request;
  std::string filter = options.filter;
  if (!options.states.empty()) {
    absl::StrAppend(&filter, " state=", options.states);
  }
  if (!options.owner.empty()) {
    absl::StrAppend(&filter, " owner=", options.owner);
  }
  for (const std::string& label : options.labels) {
    absl::StrAppend(&filter, " label.", label);
  }
  request.set_filter(filter);
  v1::ListJobsResponse all;
  do {
    const int left = options.limit - all.jobs_size();
    request.set_page_size(options.limit == 0 ? kMaxPage : std::min(left, kMaxPage));
    HEARTH_ASSIGN_OR_RETURN(v1::ListJobsResponse page, client->Call<v1::ListJobsResponse>(request));
    request.set_page_token(page.next_page_token());
    for (v1::Job& job : *page.mutable_jobs()) {
      *all.add_jobs() = std::move(job);
    }
  } while (!request.page_token().empty() &&
           (options.limit == 0 || all.jobs_size() < options.limit));
  if (!request.page_token().empty() && !context.quiet && context.format == OutputFormat::kTable) {
    WriteErr(absl::StrCat("showing the newest ", all.jobs_size(), "; --limit 0 shows all\n"));
  }
  HEARTH_RETURN_IF_ERROR(PrintJobs(context.format, {all.jobs().begin(), all.jobs().end()}, all));
  return kExitOk;
}

}  // namespace

Action SetupList(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--filter", options->filter,
                 "Terms that must all hold, e.g. 'state=running name=x'");
  app.add_option("--state", options->states, "Only these states, e.g. running,queued");
  app.add_option("--owner", options->owner, "Only jobs of this user");
  app.add_option("-l,--label", options->labels, "Only jobs with this label: key=value, repeatable")
      ->allow_extra_args(false);
  app.add_option("--limit", options->limit, "Show at most this many, 0 = all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
