#include "jobctl/commands/jobs/wait.h"

#include <algorithm>
#include <list>
#include <memory>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/client/retry.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"

namespace hearth::jobctl {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(250);  // for Ctrl-C and the timeout
constexpr int kWorstFirst[] = {kExitJobFailed, kExitTimedOut, kExitJobCancelled, kExitOk};

int Worse(int a, int b) {
  for (const int code : kWorstFirst) {
    if (code == a || code == b) {
      return code;
    }
  }
  return a;
}

class Waiting {
 public:
  Waiting(Client& client, const std::vector<std::string>& job_ids)
      : client_(client), job_ids_(job_ids) {}

  absl::StatusOr<int> Run(absl::Duration timeout) {
    std::vector<std::thread> threads;  // reads of a stream block, so each has one
    {
      absl::MutexLock lock(&mu_);
      for (const std::string& job_id : job_ids_) {
        jobs_.emplace_back().job.set_job_id(job_id);
      }
      under_way_ = jobs_.size();
      for (Each& each : jobs_) {
        threads.emplace_back([this, &each] { Watch(each); });
      }
    }
    const absl::StatusOr<int> code = Await(timeout);
    client_.CancelStreams();
    for (std::thread& thread : threads) {
      thread.join();
    }
    return code;
  }

 private:
  struct Each {
    v1::Job job;          // as last heard
    absl::Status status;  // of the stream
    bool known = false;   // the stream has ended
  };

  void Watch(Each& each) ABSL_LOCKS_EXCLUDED(mu_) {
    v1::WatchJobRequest request;
    {
      absl::MutexLock lock(&mu_);
      request.set_job_id(each.job.job_id());
    }
    const absl::Status status = RetryStream(
        [&](const auto& progressed) {
          return client_.WatchJob(request, [&](const v1::WatchJobResponse& response) {
            progressed();
            request.set_cursor(response.cursor());
            absl::MutexLock lock(&mu_);
            each.job = response.job();
            return !Rests(each.job.state());
          });
        },
        [this](absl::Duration pause) {
          absl::MutexLock lock(&mu_);
          return !Clock::Real().AwaitWithTimeout(mu_, absl::Condition(&over_), pause);
        },
        notice_);
    absl::MutexLock lock(&mu_);
    if (over_) {
      return;  // the stream was cancelled
    }
    // The stream ends well when the job is deleted.
    each.status = status.ok() && !Rests(each.job.state())
                      ? absl::NotFoundError(absl::StrCat("job ", request.job_id(), " was deleted"))
                      : status;
    each.known = true;
    --under_way_;
    broken_ = broken_ || !each.status.ok();
    if (each.status.ok()) {
      WriteErr(absl::StrCat("job/", each.job.job_id(), " ", StateName(each.job.state()),
                            each.job.reason().empty() ? "" : ": ", each.job.reason(), "\n"));
    }
  }

  bool Settled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return under_way_ == 0 || broken_; }

  absl::StatusOr<int> Await(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Duration start = Clock::Real().Monotonic();
    absl::MutexLock lock(&mu_);
    while (!Settled() && !Interrupted()) {
      const absl::Duration left = timeout - (Clock::Real().Monotonic() - start);
      if (timeout > absl::ZeroDuration() && left <= absl::ZeroDuration()) {
        break;
      }
      const absl::Duration pause = timeout > absl::ZeroDuration() ? std::min(left, kPoll) : kPoll;
      Clock::Real().AwaitWithTimeout(mu_, absl::Condition(this, &Waiting::Settled), pause);
    }
    over_ = true;
    if (Interrupted()) {
      SayDetached("wait", job_ids_);
      return kExitOk;
    }
    int code = kExitOk;
    for (const Each& each : jobs_) {
      if (absl::IsNotFound(each.status)) {
        WriteErr(absl::StrCat("error: ", each.status.message(), "\n"));
        return kExitNotFound;
      }
      HEARTH_RETURN_IF_ERROR(each.status);
      code = Worse(code, each.known ? ExitCodeOf(each.job.state()) : int{kExitTimedOut});
    }
    for (const Each& each : jobs_) {
      if (!each.known) {
        WriteErr(absl::StrCat("timed out; job/", each.job.job_id(), " is ",
                              StateName(each.job.state()), "\n"));
      }
    }
    return code;
  }

  Client& client_;
  const std::vector<std::string>& job_ids_;

  OutageNotice notice_{[](const std::string& line) { WriteErr(absl::StrCat(line, "\n")); }};
  absl::Mutex mu_;
  std::list<Each> jobs_ ABSL_GUARDED_BY(mu_);  // in the order asked for
  size_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // the stream of one has failed
  bool over_ ABSL_GUARDED_BY(mu_) = false;    // the wait is
};

struct Options {
  std::vector<std::string> job_ids;
  std::string timeout;
};

}  // namespace

absl::StatusOr<int> WaitForJobs(Client& client,
                                const std::vector<std::string>& job_ids,
                                absl::Duration timeout) {
  return Waiting(client, job_ids).Run(timeout);
}

absl::StatusOr<int> WaitForJobs(Context& context,
                                const std::vector<std::string>& job_ids,
                                absl::Duration timeout) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  return WaitForJobs(*client, job_ids, timeout);
}

Action SetupWait(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.footer(
      "Exit codes: 0 succeeded or paused, 100 failed, 101 timed out, 102 not found, 103 "
      "cancelled.\nWith several jobs the worst counts: 102 at once, else 100, 101, 103, 0.");
  AddJobs(app, options->job_ids);
  app.add_option("--timeout", options->timeout, "Give up after this time, e.g. 10m");
  return [options](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(const absl::Duration timeout,
                            ParseTimeout(options->timeout, "--timeout"));
    return WaitForJobs(context, options->job_ids, timeout);
  };
}

}  // namespace hearth::jobctl
