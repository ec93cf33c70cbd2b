#include "jobctl/commands/jobs/await_jobs.h"

#include <algorithm>
#include <list>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/client/retry.h"
#include "jobctl/views/output/output.h"

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

class Awaiting {
 public:
  Awaiting(Client& client,
           const std::vector<std::string>& job_ids,
           const AwaitOptions& options,
           JobsView& view)
      : client_(client), job_ids_(job_ids), options_(options), view_(view) {}

  absl::StatusOr<Awaited> Run() {
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
    Await();
    client_.CancelStreams();
    for (std::thread& thread : threads) {
      thread.join();
    }
    ShowNews(/*over=*/true);
    return Conclude();
  }

 private:
  struct Each {
    v1::Job job;          // as last heard
    absl::Status status;  // of the stream
    bool ended = false;   // the stream has
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
            news_ = true;
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
    each.ended = true;
    --under_way_;
    broken_ = broken_ || !each.status.ok();
  }

  bool Settled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return under_way_ == 0 || broken_; }
  bool Stirred() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return news_ || Settled(); }

  void Say(const std::string& line) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    messages_.push_back(line);
    news_ = true;
  }

  // Until all is settled, the time is up or somebody interrupts.
  void Await() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Duration start = Clock::Real().Monotonic();
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        const absl::Duration left = options_.timeout - (Clock::Real().Monotonic() - start);
        const bool limited = options_.timeout > absl::ZeroDuration();
        if (Settled() || Interrupted() || (limited && left <= absl::ZeroDuration())) {
          over_ = true;
          return;
        }
        Clock::Real().AwaitWithTimeout(mu_, absl::Condition(this, &Awaiting::Stirred),
                                       limited ? std::min(left, kPoll) : kPoll);
        // News gather for this long before they are shown; the end of all jobs is shown at once.
        if (options_.every > absl::ZeroDuration()) {
          Clock::Real().AwaitWithTimeout(mu_, absl::Condition(this, &Awaiting::Settled),
                                         limited ? std::min(left, options_.every) : options_.every);
        }
      }
      ShowNews(/*over=*/false);
    }
  }

  void ShowNews(bool over) ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<v1::Job> jobs;
    std::vector<std::string> messages;
    {
      absl::MutexLock lock(&mu_);
      if (!news_ && !over) {
        return;
      }
      news_ = false;
      messages.swap(messages_);
      jobs.reserve(jobs_.size());
      for (const Each& each : jobs_) {
        jobs.push_back(each.job);
      }
    }
    view_.Show(jobs, messages, over);
  }

  absl::StatusOr<Awaited> Conclude() ABSL_LOCKS_EXCLUDED(mu_) {
    if (Interrupted()) {
      SayDetached(options_.command, job_ids_);
      return Awaited{};
    }
    absl::MutexLock lock(&mu_);
    Awaited awaited;
    for (const Each& each : jobs_) {
      HEARTH_RETURN_IF_ERROR(each.status);
      awaited.timed_out = awaited.timed_out || !each.ended;
      awaited.code =
          Worse(awaited.code, each.ended ? ExitCodeOf(each.job.state()) : int{kExitTimedOut});
    }
    for (const Each& each : jobs_) {
      if (!each.ended) {
        WriteErr(absl::StrCat("timed out; job/", each.job.job_id(), " is ",
                              StateName(each.job.state()), "\n"));
      }
    }
    return awaited;
  }

  Client& client_;
  const std::vector<std::string>& job_ids_;
  const AwaitOptions& options_;
  JobsView& view_;

  OutageNotice notice_{[this](const std::string& line) { Say(line); }};
  absl::Mutex mu_;
  std::list<Each> jobs_ ABSL_GUARDED_BY(mu_);               // in the order asked for
  std::vector<std::string> messages_ ABSL_GUARDED_BY(mu_);  // not shown yet
  bool news_ ABSL_GUARDED_BY(mu_) = false;                  // something is not shown yet
  size_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // the stream of one has failed
  bool over_ ABSL_GUARDED_BY(mu_) = false;    // the wait is
};

}  // namespace

absl::StatusOr<Awaited> AwaitJobs(Client& client,
                                  const std::vector<std::string>& job_ids,
                                  const AwaitOptions& options,
                                  JobsView& view) {
  return Awaiting(client, job_ids, options, view).Run();
}

}  // namespace hearth::jobctl
