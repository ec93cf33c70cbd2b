// `jobctl report`: the summary of a job. Facts in, text out; no calls, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/client/history.h"
#include "jobctl/doctor/finding.h"
#include "jobctl/report/cost.h"

namespace hearth::jobctl {

struct ReportFacts {
  v1::Job job;
  History history;
  std::vector<v1::JobEvent> events;  // oldest first
  v1::GetVersionResponse version;
  Prices prices;
  double temperature_limit = 85.0;  // degrees Celsius above which a device is too hot
  absl::Time now;
};

// One device the job runs or ran on.
struct ReportDevice {
  std::string worker_id;
  std::string host;
  std::string kind;  // cpu | cuda
  std::string model;
  std::string driver;  // empty for cpu, as cuda
  std::string cuda;
  std::string version;  // of the worker, with its commit
};

struct Report {
  v1::Job job;
  std::vector<v1::StepReport> steps;
  int64_t voided_steps = 0;
  Usage usage;
  Prices prices;
  Findings verdict;
  double temperature_limit = 0.0;
  // Those of the present gang, or the last one. Empty before the first.
  std::vector<ReportDevice> devices;
  std::string coordinator_version;  // "0.1.0 (1a2b3c4d5e6f)"
  std::string jobctl_version;
  std::vector<std::string> recoveries;  // a sentence each, oldest first
  std::vector<std::string> notes;       // of users, oldest first
  std::optional<double> mean_tokens_per_second;
  std::optional<double> final_loss;
  std::optional<double> final_validation_loss;
  std::optional<double> best_validation_loss;
  int64_t best_validation_step = 0;
  std::string spec_yaml;
  absl::Time now;
};

Report BuildReport(const ReportFacts& facts);

// The hottest that a device of the job became, against `limit` degrees Celsius; a note when nothing
// was measured.
Finding JudgeTemperature(const v1::Job& job, double limit);

// What `watch` says when the job has ended: the verdict, speed, energy and cost, some lines of
// plain text. Only what was measured is in it. Empty for a job that took no step and did not fail.
// `columns` as in Render(Findings).
std::string RenderSummary(const Report& report, int columns = 0);

// A shell command that runs the job again with the same job file.
std::string RerunCommand(const std::string& job_id);

// Change of `y` per unit of `x` by least squares, and its standard error. Points that are not
// finite do not count; absent below 10 points.
struct Slope {
  double per_unit = 0.0;
  double error = 0.0;
};
std::optional<Slope> SlopeOf(const std::vector<double>& x, const std::vector<double>& y);

// Lines end in '\n'. What users chose (names, reasons, paths) is escaped for its format.
std::string RenderMarkdown(const Report& report);
std::string RenderMarkdown(absl::Span<const Report> reports);
// One page without scripts or anything fetched from elsewhere.
std::string RenderHtml(const Report& report);
std::string RenderHtml(absl::Span<const Report> reports);
// {"schema": "hearth.report/v1", ...}; what is not known is null.
std::string RenderJson(const Report& report);
// A list of these objects; at least one.
std::string RenderJson(absl::Span<const Report> reports);

}  // namespace hearth::jobctl
