#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_labels.h"
#include "jobctl/commands/live.h"
#include "jobctl/views/output/columns.h"
#include "jobctl/views/text/terminal.h"

namespace hearth::jobctl {
namespace {

constexpr int kMaxPage = 1000;
constexpr absl::Duration kRefresh = absl::Seconds(2);

struct Options {
  std::string filter;
  std::string states;
  std::string owner;
  std::vector<std::string> labels;
  std::string search;
  std::string since;
  std::string sort;
  std::string columns;
  bool watch = false;
  int limit = 50;
};

std::string FilterOf(const Options& options) {
  std::string filter = options.filter;
  if (!options.states.empty()) {
    absl::StrAppend(&filter, " state=", options.states);
  }
  if (!options.owner.empty()) {
    absl::StrAppend(&filter, " owner=", options.owner);
  }
  absl::StrAppend(&filter, LabelFilter(options.labels));
  return filter;
}

struct Found {
  std::vector<v1::Job> jobs;
  bool more = false;  // --limit left some out
};

// The jobs asked for. The coordinator filters what it can; the rest is done here, over all pages.
absl::StatusOr<Found> Find(Client& client, const Options& options) {
  absl::Time since = absl::InfinitePast();
  if (!options.since.empty()) {
    HEARTH_ASSIGN_OR_RETURN(
        since, ParseSince(options.since, Clock::Real().Now(), absl::LocalTimeZone(), "--since"));
  }
  const size_t limit = static_cast<size_t>(options.limit);
  // With an order of the user's own, the first jobs may be on the last page.
  const bool first_ones = limit > 0 && options.sort.empty();
  const bool all_match = options.search.empty() && options.since.empty();
  Found found;
  v1::ListJobsRequest request;
  request.set_filter(FilterOf(options));
  bool newer = true;
  do {
    request.set_page_size(
        first_ones && all_match
            ? std::min(kMaxPage, options.limit - static_cast<int>(found.jobs.size()))
            : kMaxPage);
    HEARTH_ASSIGN_OR_RETURN(v1::ListJobsResponse page, client.Call<v1::ListJobsResponse>(request));
    request.set_page_token(page.next_page_token());
    for (v1::Job& job : *page.mutable_jobs()) {
      newer = newer && TimeOf(job.create_time()) >= since;  // newest first
      if (newer && JobMentions(job, options.search)) {
        found.jobs.push_back(std::move(job));
      }
    }
  } while (newer && !request.page_token().empty() && (!first_ones || found.jobs.size() < limit));
  if (!options.sort.empty()) {
    HEARTH_RETURN_IF_ERROR(SortJobs(options.sort, found.jobs));
  }
  found.more = limit > 0 && ((newer && !request.page_token().empty()) || found.jobs.size() > limit);
  if (limit > 0 && found.jobs.size() > limit) {
    found.jobs.resize(limit);
  }
  return found;
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<JobColumn> columns, ParseJobColumns(options.columns));
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  const bool table =
      context.format == OutputFormat::kTable || context.format == OutputFormat::kWide;
  HEARTH_ASSIGN_OR_RETURN(const Found found, Find(*client, options));
  if (options.watch && table && IsTerminal()) {
    const bool wide = context.format == OutputFormat::kWide;
    return ShowLive(kRefresh, [&]() -> absl::StatusOr<std::string> {
      HEARTH_ASSIGN_OR_RETURN(const Found now, Find(*client, options));
      return columns.empty() ? RenderJobs(now.jobs, wide, {}, Clock::Real().Now(), FitColumns())
                             : RenderColumns(columns, now.jobs, wide ? 0 : FitColumns());
    });
  }
  if (found.more && !context.quiet && table) {
    WriteErr(absl::StrCat("showing the ", options.sort.empty() ? "newest " : "first ",
                          found.jobs.size(), "; --limit 0 shows all\n"));
  }
  HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintColumns(context.format, columns, found.jobs));
  if (!printed) {
    v1::ListJobsResponse all;
    all.mutable_jobs()->Add(found.jobs.begin(), found.jobs.end());
    HEARTH_RETURN_IF_ERROR(PrintJobs(context.format, found.jobs, all));
  }
  return kExitOk;
}

}  // namespace

Action SetupList(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.footer(
      "With -o wide, EPOCH is how often the job has been started, from 1, and RECIPE the number "
      "formats\nthat it computes in, such as bf16 or fp8.");
  app.add_option("--filter", options->filter,
                 "Terms that must all hold, e.g. 'state=running name=x'");
  app.add_option("--state", options->states, "Only these states, e.g. running,queued")
      ->check(WrongState);
  app.add_option("--owner,--user", options->owner, "Only jobs of this user");
  AddLabels(app, options->labels, "Only jobs with this label");
  app.add_option("--search", options->search,
                 "Only jobs with this text in id, name, owner, recipe, labels or reason");
  app.add_option("--since", options->since,
                 "Only jobs created since: how long ago (2d), a date (2026-01-31), or a date and a "
                 "time (\"2026-01-31 17:05\")");
  app.add_option(
      "--sort", options->sort,
      "Order by a field, e.g. step or last_report.loss; -step reverses the order (default: "
      "newest first)");
  app.add_option(
      "--columns", options->columns,
      "Show these fields of jobs and job files, e.g. job_id,step,optimizer.lr,labels.team");
  app.add_flag("-w,--watch", options->watch,
               "Redraw every two seconds until q or Ctrl-C (once when piped)");
  app.add_option("--limit", options->limit, "Show at most this many, 0 = all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
