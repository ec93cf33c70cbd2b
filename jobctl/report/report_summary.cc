// The short forms of a report: what is said when a job has ended.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/units.h"
#include "jobctl/report/report.h"

namespace hearth::jobctl {

std::string RerunCommand(const std::string& job_id) {
  return absl::StrCat("jobctl get ", job_id, " --spec | jobctl submit -f -");
}

std::string RenderSummary(const Report& report, int columns) {
  if (report.steps.empty() && report.job.state() != v1::JOB_STATE_FAILED) {
    return "";
  }
  const Usage& usage = report.usage;
  std::string out = Render(report.verdict, OutputFormat::kTable, columns);
  if (report.steps.empty()) {
    return out;
  }
  absl::StrAppend(&out, FormatCount(static_cast<double>(usage.tokens)), " tokens in ",
                  HumanDuration(absl::Seconds(usage.seconds)));
  if (report.mean_tokens_per_second.has_value()) {
    absl::StrAppend(&out, ", ", FormatTokensPerSecond(*report.mean_tokens_per_second));
  }
  out += '\n';
  if (usage.joules.has_value()) {
    absl::StrAppend(&out, "Energy: ", EnergySentence(usage), "\n");
  }
  if (usage.cost.has_value()) {
    const std::string& currency = report.prices.currency;
    absl::StrAppend(&out, "Cost: ", MoneyText(*usage.cost, currency));
    if (usage.cost_per_billion_tokens.has_value()) {
      absl::StrAppend(&out, ", ", MoneyText(*usage.cost_per_billion_tokens, currency),
                      " per billion tokens");
    }
    out += '\n';
  }
  return absl::StrCat(out, "To share: jobctl report ", report.job.job_id(), "\n");
}

}  // namespace hearth::jobctl
