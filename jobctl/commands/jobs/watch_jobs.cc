#include "jobctl/commands/jobs/watch_jobs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "jobctl/views/jobs/progress.h"
#include "jobctl/views/output/output.h"
#include "jobctl/views/text/display_text.h"

namespace hearth::jobctl {
namespace {

// A job that nothing was heard of has only its id.
bool Heard(const v1::Job& job) {
  return job.state() != v1::JOB_STATE_UNSPECIFIED;
}

// One line that cannot command the terminal.
std::string Line(const std::string& text, const std::function<TerminalSize()>& size) {
  const std::string safe = EscapeControl(text, /*keep_lines=*/false);
  return absl::StrCat(size == nullptr ? safe : WrapText(safe, size().columns - 2, 2), "\n");
}

}  // namespace

std::string WatchView::NewStates(const std::vector<v1::Job>& jobs) {
  std::string out;
  for (const v1::Job& job : jobs) {
    std::string& said = said_[job.job_id()].state;
    if (const std::string state = StateText(job); Heard(job) && state != said) {
      said = state;
      out += Line(absl::StrCat(job.job_id(), " ", state), outlet_.size);
    }
  }
  return out;
}

std::string WatchView::NewSteps(const std::vector<v1::Job>& jobs) {
  std::string out;
  for (const v1::Job& job : jobs) {
    int64_t& printed = said_[job.job_id()].step;
    const v1::StepReport& last = job.last_report();
    if (ProgressDue(job, last.step(), printed, Rests(job.state()))) {
      printed = last.step();
      out += Line(absl::StrCat(job.job_id(), " ", ProgressText(job, last)), nullptr);
    }
  }
  return out;
}

void WatchView::Show(const std::vector<v1::Job>& jobs,
                     const std::vector<std::string>& messages,
                     bool /*over*/) {
  if (drawn_ > 0) {
    // Up to the first line of the table, and erase from there on: it comes again below what is new.
    outlet_.out(absl::StrCat("\033[", drawn_, "A\r\033[J"));
    drawn_ = 0;
  }
  for (const std::string& message : messages) {
    outlet_.err(absl::StrCat(message, "\n"));
  }
  if (outlet_.size == nullptr) {
    // The last step of a job comes before its end.
    const std::string steps = NewSteps(jobs);
    outlet_.out(absl::StrCat(steps, NewStates(jobs)));
    return;
  }
  const TerminalSize size = outlet_.size();
  // The line after the table is the cursor's.
  const std::string table = RenderProgress(jobs, size.columns, size.rows - 1);
  outlet_.out(absl::StrCat(NewStates(jobs), table));
  drawn_ = static_cast<int>(std::count(table.begin(), table.end(), '\n'));
}

}  // namespace hearth::jobctl
