#include "jobctl/report/report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "common/reasons/reason_codes.h"
#include "common/spec/objective/objective_table.h"

namespace hearth::jobctl {
namespace {

// The slope is that of the last fifth of the steps, but of at least this many.
constexpr size_t kSlopeSteps = 50;
constexpr size_t kFewestPoints = 10;
constexpr double kSlopeErrors = 2.0;  // standard errors that make a slope
// An epoch's first steps still allocate: a tenth of them, but at least this many. Growth after them
// counts if it is more than a share of the memory and more than a process's normal variation.
constexpr size_t kFewestWarmUpSteps = 10;
constexpr double kMemoryGrowth = 0.02;
constexpr double kMemoryNoise = 64.0 * 1024 * 1024;  // bytes
constexpr int64_t kOverdue = 2;                      // checkpoint intervals

void Add(
    Report& report, Verdict verdict, std::string check, std::string text, std::string remedy = "") {
  report.verdict.push_back({verdict, std::move(check), std::move(text), std::move(remedy)});
}

// A loss or gradient that was not finite, or jumped, ended the job. That step is not in the job's
// history.
bool EndedByNumbers(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_FAILED && job.reason_code() == reasons::kNumerical;
}

// How to resume a failed job.
std::string ResumeAdvice(const v1::Job& job) {
  const std::string command = absl::StrCat("jobctl resume ", job.job_id(),
                                           EndedByNumbers(job) ? " --set optimizer.lr=LOWER" : "");
  if (!spec::Trains(job.spec())) {
    v1::Job next = job;
    next.set_step(job.step() + 1);
    return absl::StrCat(command, " goes on with ", spec::StepText(next));
  }
  return job.has_checkpoint()
             ? absl::StrCat(command, " continues from the checkpoint of step ",
                            job.checkpoint().step())
             : absl::StrCat("there is no checkpoint: ", command, " starts again at step 1");
}

void JudgeEnd(Report& report) {
  const v1::Job& job = report.job;
  const Verdict verdict = job.state() == v1::JOB_STATE_SUCCEEDED ? Verdict::kOk
                          : job.state() == v1::JOB_STATE_FAILED  ? Verdict::kFailed
                                                                 : Verdict::kNote;
  Add(report, verdict, "end",
      absl::StrCat(StateName(job.state()), " at ", spec::StepText(job),
                   job.reason().empty() ? "" : ": ", job.reason()),
      verdict == Verdict::kFailed ? ResumeAdvice(job) : "");
}

void JudgeLoss(Report& report) {
  const size_t count =
      std::min(report.steps.size(), std::max(kSlopeSteps, report.steps.size() / 5));
  std::vector<double> x;
  std::vector<double> y;
  for (size_t i = report.steps.size() - count; i < report.steps.size(); ++i) {
    x.push_back(static_cast<double>(report.steps[i].step()));
    y.push_back(report.steps[i].loss());
  }
  const std::optional<Slope> slope = SlopeOf(x, y);
  if (!slope.has_value()) {
    Add(report, Verdict::kNote, "loss", "too few steps for a slope");
    return;
  }
  const bool clear = std::abs(slope->per_unit) > kSlopeErrors * slope->error;
  const bool falls = slope->per_unit < 0.0;
  Add(report,
      !clear  ? Verdict::kNote
      : falls ? Verdict::kOk
              : Verdict::kWarning,
      "loss",
      absl::StrFormat("%s over the last %d steps: %+.3g (standard error %.2g) per 1000 steps",
                      !clear  ? "flat"
                      : falls ? "falling"
                              : "rising",
                      count, slope->per_unit * 1000.0, slope->error * 1000.0));
}

void JudgeMemory(Report& report) {
  // Only the last epoch counts: each epoch begins with an empty device.
  const auto first =
      std::find_if(report.steps.begin(), report.steps.end(), [&report](const v1::StepReport& step) {
        return step.epoch() == report.steps.back().epoch();
      });
  const auto count = static_cast<size_t>(report.steps.end() - first);
  const size_t warm_up = std::max(kFewestWarmUpSteps, count / 10);
  if (count <= warm_up) {
    Add(report, Verdict::kNote, "memory", "too few steps to see growth");
    return;
  }
  const auto by_memory = [](const v1::StepReport& a, const v1::StepReport& b) {
    return a.memory_bytes() < b.memory_bytes();
  };
  const auto warm = first + static_cast<std::ptrdiff_t>(warm_up);
  const auto settled =
      static_cast<double>(std::max_element(first, warm, by_memory)->memory_bytes());
  const auto highest =
      static_cast<double>(std::max_element(warm, report.steps.end(), by_memory)->memory_bytes());
  if (settled <= 0.0) {
    Add(report, Verdict::kNote, "memory", "not measured");
    return;
  }
  const double growth = std::max(0.0, highest - settled);
  Add(report,
      growth > std::max(kMemoryNoise, kMemoryGrowth * settled) ? Verdict::kWarning : Verdict::kOk,
      "memory",
      absl::StrCat("grew by ", FormatBytes(static_cast<int64_t>(growth)), " after step ", warm_up,
                   " of the last epoch (", FormatBytes(static_cast<int64_t>(highest)),
                   " at most)"));
}

void JudgeNumbers(Report& report) {
  int64_t bad = 0;
  for (const v1::StepReport& step : report.steps) {
    bad += std::isfinite(step.loss()) && std::isfinite(step.grad_norm()) ? 0 : 1;
  }
  const int64_t skipped = report.steps.empty() ? 0 : report.steps.back().skipped_steps();
  const bool ended = EndedByNumbers(report.job);
  const std::string refused =
      ended ? absl::StrFormat("step %d was refused, which ended the job; before it ",
                              report.job.step() + 1)
            : "";
  Add(report,
      ended               ? Verdict::kFailed
      : bad + skipped > 0 ? Verdict::kWarning
                          : Verdict::kOk,
      "numbers",
      absl::StrFormat("%s%d steps not finite, %d skipped, %d discarded by resumes", refused, bad,
                      skipped, report.voided_steps));
}

void JudgeCheckpoint(Report& report) {
  const v1::Job& job = report.job;
  if (!job.has_checkpoint()) {
    Add(report, Ended(job.state()) && job.step() > 0 ? Verdict::kWarning : Verdict::kNote,
        "checkpoint", "there is none");
    return;
  }
  const int64_t behind = std::max<int64_t>(0, job.step() - job.checkpoint().step());
  const std::string age = HumanDuration(report.now - TimeOf(job.checkpoint().create_time()));
  const int64_t every = job.spec().checkpoint().every_steps();
  const bool overdue =
      job.state() == v1::JOB_STATE_SUCCEEDED ? behind > 0 : every > 0 && behind > kOverdue * every;
  Add(report, overdue ? Verdict::kWarning : Verdict::kOk, "checkpoint",
      absl::StrCat("step ", job.checkpoint().step(), ", ", behind, " steps behind, written ", age,
                   " ago"));
}

void FillLosses(Report& report) {
  double seconds = 0.0;
  double tokens = 0.0;
  for (const v1::StepReport& step : report.steps) {
    seconds += step.step_seconds();
    tokens += step.step_seconds() * step.tokens_per_second();
    if (!step.has_validation_loss()) {
      continue;
    }
    report.final_validation_loss = step.validation_loss();
    if (!report.best_validation_loss.has_value() ||
        step.validation_loss() < *report.best_validation_loss) {
      report.best_validation_loss = step.validation_loss();
      report.best_validation_step = step.step();
    }
  }
  if (!report.steps.empty() && spec::Trains(report.job.spec())) {
    report.final_loss = report.steps.back().loss();
  }
  if (seconds > 0.0 && tokens > 0.0) {
    report.mean_tokens_per_second = tokens / seconds;
  }
}

void FillDevices(Report& report) {
  for (const v1::DeviceGroup& group : report.job.devices().groups()) {
    for (const std::string& worker_id : group.worker_ids()) {
      report.devices.push_back({worker_id, group.host(), group.kind(), group.model(),
                                group.driver_version(), group.cuda_version(), group.version()});
    }
  }
}

}  // namespace

std::optional<Slope> SlopeOf(const std::vector<double>& x, const std::vector<double>& y) {
  double count = 0.0;
  double mean_x = 0.0;
  double mean_y = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(y[i])) {
      count += 1.0;
      mean_x += (x[i] - mean_x) / count;
      mean_y += (y[i] - mean_y) / count;
    }
  }
  double xx = 0.0;
  double xy = 0.0;
  double yy = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(y[i])) {
      xx += (x[i] - mean_x) * (x[i] - mean_x);
      xy += (x[i] - mean_x) * (y[i] - mean_y);
      yy += (y[i] - mean_y) * (y[i] - mean_y);
    }
  }
  if (count < static_cast<double>(kFewestPoints) || xx <= 0.0) {
    return std::nullopt;
  }
  const double slope = xy / xx;
  // The standard error of a least-squares slope; the line itself takes two degrees of freedom.
  const double rest = std::max(0.0, yy - slope * xy);
  return Slope{slope, std::sqrt(rest / (count - 2.0) / xx)};
}

Finding JudgeTemperature(const v1::Job& job, double limit) {
  const v1::JobDevices& devices = job.devices();
  if (devices.hottest_celsius() == 0.0) {
    return {Verdict::kNote, "temperature", "not measured", ""};
  }
  return {
      devices.hottest_celsius() > limit ? Verdict::kWarning : Verdict::kOk, "temperature",
      absl::StrFormat("hottest: %.0f C on %s at step %d (limit %.0f C)", devices.hottest_celsius(),
                      devices.hottest_worker_id(), devices.hottest_step(), limit),
      ""};
}

Report BuildReport(const ReportFacts& facts) {
  Report report;
  report.job = facts.job;
  report.steps = facts.history.steps;
  report.voided_steps = facts.history.voided_steps;
  report.prices = facts.prices;
  report.temperature_limit = facts.temperature_limit;
  report.now = facts.now;
  report.usage = UsageOf(facts.job, facts.history, facts.prices);
  report.coordinator_version =
      absl::StrCat(facts.version.version(), " (", facts.version.commit(), ")");
  report.jobctl_version = VersionString();
  report.spec_yaml = config::ToYaml(facts.job.spec());
  for (const v1::JobEvent& event : facts.events) {
    if (event.type() == "recovery") {
      report.recoveries.push_back(
          absl::StrCat(TimeText(event.time()), ", step ", event.step(), ": ", event.message()));
    } else if (event.type() == "note") {
      report.notes.push_back(absl::StrCat(TimeText(event.time()), ", step ", event.step(), ", ",
                                          event.actor(), ": ", event.message()));
    }
  }
  FillLosses(report);
  FillDevices(report);
  JudgeEnd(report);
  // The steps of other tasks have neither gradients nor checkpoints.
  const bool trains = spec::Trains(facts.job.spec());
  if (trains) {
    JudgeLoss(report);
    JudgeMemory(report);
  }
  report.verdict.push_back(JudgeTemperature(facts.job, facts.temperature_limit));
  if (trains) {
    JudgeNumbers(report);
    JudgeCheckpoint(report);
  }
  return report;
}

}  // namespace hearth::jobctl
