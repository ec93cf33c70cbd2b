#include "jobctl/views/jobs/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/units.h"
#include "common/spec/objective/objective_table.h"
#include "jobctl/views/output/output.h"
#include "jobctl/views/output/table.h"

namespace hearth::jobctl {
namespace {

constexpr int kLinesOfAJob = 100;
constexpr int kLinesBesideJobs = 2;  // the header, and how many jobs are left out

}  // namespace

std::string EtaText(const v1::Job& job, const v1::StepReport& last) {
  const int64_t left = spec::TotalSteps(job) - last.step();
  if (left <= 0 || last.step_seconds() <= 0) {
    return "";
  }
  return absl::StrCat(
      "eta ", HumanDuration(absl::Seconds(static_cast<double>(left) * last.step_seconds())));
}

std::string ProgressText(const v1::Job& job, const v1::StepReport& last) {
  if (!spec::Trains(job.spec())) {
    return absl::StrFormat("%s %d/%d  %s", std::string(spec::StepUnit(job.spec())), last.step(),
                           spec::TotalSteps(job), EtaText(job, last));
  }
  return absl::StrFormat("step %d/%d  loss %.4f  grad %.3f  lr %.2e  %s tok/s  %s", last.step(),
                         spec::TotalSteps(job), last.loss(), last.grad_norm(), last.learning_rate(),
                         FormatCount(last.tokens_per_second()), EtaText(job, last));
}

std::string StateText(const v1::Job& job) {
  return absl::StrCat(StateName(job.state()), job.reason().empty() ? "" : ": ", job.reason());
}

bool ProgressDue(const v1::Job& job, int64_t step, int64_t printed, bool last) {
  const int64_t every = std::max<int64_t>(1, spec::TotalSteps(job) / kLinesOfAJob);
  return step > 0 && step != printed && (last || step / every != printed / every);
}

std::string RenderProgress(const std::vector<v1::Job>& jobs, int columns, int rows) {
  Table table({"NAME", "STATE", "STEP", "LOSS", "TOK/S", "LEFT"});
  table.ShortenLast();  // a line each, so that the table can be drawn over
  const size_t room = static_cast<size_t>(std::max(rows - kLinesBesideJobs, 1));
  const size_t shown = jobs.size() <= room + 1 ? jobs.size() : room;
  for (size_t i = 0; i < shown; ++i) {
    const v1::Job& job = jobs[i];
    const bool live = job.state() == v1::JOB_STATE_RUNNING;
    const std::string left = live ? EtaText(job, job.last_report()) : "";
    const bool heard = job.state() != v1::JOB_STATE_UNSPECIFIED;
    table.Add({job.job_id(), heard ? StateName(job.state()) : "-",
               absl::StrCat(job.step(), "/", spec::TotalSteps(job)), LossText(job), SpeedText(job),
               left.empty() ? "-" : std::string(absl::StripPrefix(left, "eta "))});
  }
  return absl::StrCat(
      table.Render(columns),
      shown < jobs.size() ? absl::StrCat("and ", jobs.size() - shown, " more\n") : "");
}

}  // namespace hearth::jobctl
