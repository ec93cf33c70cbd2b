#include <algorithm>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/commands/access/callers.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/views/output/table.h"

namespace hearth::jobctl {
namespace {

constexpr int kMaxPage = 1000;

struct Options {
  v1::ListAuditRequest request;
  int limit = 100;
};

std::string Dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::ListAuditRequest request = options.request;
  v1::ListAuditResponse all;
  do {
    const int left = options.limit - all.records_size();
    request.set_page_size(options.limit == 0 ? kMaxPage : std::min(left, kMaxPage));
    HEARTH_ASSIGN_OR_RETURN(v1::ListAuditResponse page,
                            client->Call<v1::ListAuditResponse>(request));
    request.set_before(page.next_before());
    all.set_next_before(page.next_before());
    for (v1::AuditRecord& record : *page.mutable_records()) {
      *all.add_records() = std::move(record);
    }
  } while (all.next_before() != 0 && (options.limit == 0 || all.records_size() < options.limit));
  HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, all));
  if (printed) {
    return kExitOk;
  }
  if (all.next_before() != 0 && !context.quiet) {
    WriteErr(absl::StrCat("showing the newest ", all.records_size(), "; --limit 0 shows all\n"));
  }
  Table table({"TIME", "USER", "TOKEN", "FROM", "CALL", "TARGET", "OUTCOME"});
  for (const v1::AuditRecord& record : all.records()) {
    const v1::Caller& caller = record.caller();
    table.Add({TimeText(record.time()), CallerName(caller), Dash(caller.token()),
               Dash(caller.address()), record.method(), Dash(record.target()),
               record.message().empty() ? record.outcome()
                                        : absl::StrCat(record.outcome(), ": ", record.message())});
  }
  WriteOut(table.Render(context.format == OutputFormat::kWide ? 0 : FitColumns()));
  return kExitOk;
}

}  // namespace

Action SetupAudit(CLI::App& app) {
  auto options = std::make_shared<Options>();
  v1::ListAuditRequest& request = options->request;
  app.add_option("--user", *request.mutable_user(), "Only what this user did");
  app.add_option("--target", *request.mutable_target(),
                 "Only what was done to this job, worker or token");
  app.add_flag_callback(
      "--refused", [&request] { request.set_refused_only(true); }, "Only what was refused");
  app.add_option("--limit", options->limit, "Show at most this many, 0 = all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
