// How `watch` shows several jobs.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "jobctl/commands/jobs/await_jobs.h"
#include "jobctl/views/text/terminal.h"

namespace hearth::jobctl {

// On a terminal a table with a row for each job, which is drawn over the one before; each new state
// of a job is a line above it. When piped, lines "JOB step 40/60  loss ...", about a hundred a job,
// and "JOB STATE: reason" for each new state. One thread uses it.
class WatchView : public JobsView {
 public:
  struct Outlet {
    std::function<void(const std::string&)> out;  // standard output, as WriteTerminal
    std::function<void(const std::string&)> err;  // standard error, as WriteErr
    // Size of the terminal on standard output; null: there is none.
    std::function<TerminalSize()> size;
  };

  explicit WatchView(Outlet outlet) : outlet_(std::move(outlet)) {}

  void Show(const std::vector<v1::Job>& jobs,
            const std::vector<std::string>& messages,
            bool over) override;

 private:
  // What was said of a job.
  struct Said {
    std::string state;
    int64_t step = 0;
  };

  std::string NewStates(const std::vector<v1::Job>& jobs);
  std::string NewSteps(const std::vector<v1::Job>& jobs);

  const Outlet outlet_;
  std::map<std::string, Said> said_;  // by job id
  int drawn_ = 0;                     // lines of the table on the terminal
};

}  // namespace hearth::jobctl
