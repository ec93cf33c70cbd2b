// Following one job: its states from WatchJob, its steps from StreamMetrics, drawn by a third
// thread of control, the caller.
#include "jobctl/commands/jobs/follow.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/rpc/channel.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/objective/objective_table.h"
#include "common/time/clock.h"
#include "jobctl/client/history.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/client/retry.h"
#include "jobctl/report/report.h"
#include "jobctl/views/jobs/progress.h"
#include "jobctl/views/text/display_text.h"
#include "jobctl/views/text/terminal.h"

namespace hearth::jobctl {
namespace {

constexpr size_t kSparklinePoints = 512;
constexpr int kSparklineWidth = 24;
constexpr absl::Duration kRedraw = absl::Milliseconds(250);
constexpr absl::Duration kLastStepsWithin = absl::Seconds(10);

class Follower {
 public:
  Follower(Client& client, const Context& context, const FollowOptions& options)
      : client_(client),
        context_(context),
        options_(options),
        terminal_(IsTerminal()),
        utf8_(Utf8Locale()) {}

  absl::StatusOr<int> Run() {
    // Reads of a stream block, so each stream has a thread; this one alone draws.
    std::thread watcher([this] { WatchStates(); });
    std::thread meter([this] { WatchSteps(); });
    const bool timed_out = Loop();
    // Before CancelStreams: after it the client opens no stream, and the summary reads one.
    const absl::Status summed_up = timed_out ? absl::OkStatus() : SumUp();
    client_.CancelStreams();
    watcher.join();
    meter.join();
    HEARTH_ASSIGN_OR_RETURN(const int code, Conclude(timed_out));
    if (!summed_up.ok() && !Interrupted()) {
      WriteErr(absl::StrCat("no summary: ", summed_up.message(), "\n"));
    }
    return code;
  }

 private:
  // Repeats a stream until `over`, which is guarded by mu_.
  absl::Status Persist(bool Follower::*over, const StreamOnce& once) {
    return RetryStream(
        once,
        [this, over](absl::Duration pause) {
          absl::MutexLock lock(&mu_);
          return !Clock::Real().AwaitWithTimeout(mu_, absl::Condition(&(this->*over)), pause);
        },
        notice_);
  }

  void WatchStates() {
    v1::WatchJobRequest request;
    request.set_job_id(options_.job_id);
    const absl::Status status = Persist(&Follower::done_, [&](const auto& progressed) {
      return client_.WatchJob(request, [&](const v1::WatchJobResponse& response) {
        progressed();
        request.set_cursor(response.cursor());
        absl::MutexLock lock(&mu_);
        job_ = response.job();
        changed_ = true;
        done_ = done_ || Rests(job_.state());
        return !done_;
      });
    });
    absl::MutexLock lock(&mu_);
    if (status_.ok()) {
      status_ = status;
    }
    done_ = true;
  }

  void WatchSteps() {
    v1::StreamMetricsRequest request;
    request.set_job_id(options_.job_id);
    request.set_follow(true);
    // The job may have ended while this stream was broken; then its last steps are still missing.
    const absl::Status status = Persist(&Follower::drawn_, [&](const auto& progressed) {
      return client_.StreamMetrics(request, [&](const v1::StreamMetricsResponse& response) {
        progressed();
        absl::MutexLock lock(&mu_);
        for (const v1::MetricRecord& record : response.records()) {
          request.set_cursor(record.cursor());
          Take(record);
        }
        return true;
      });
    });
    absl::MutexLock lock(&mu_);
    if (!status.ok() && status_.ok() && !done_) {
      status_ = status;
      done_ = true;
    }
    steps_done_ = true;
  }

  void Take(const v1::MetricRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    changed_ = true;
    if (record.has_rewind()) {
      lines_.push_back(absl::StrCat("epoch ", record.rewind().epoch(), ": back to step ",
                                    record.rewind().to_step()));
      reached_ = record.rewind().to_step();
      return;
    }
    const v1::StepReport& report = record.step();
    last_ = report;
    reached_ = report.step();
    losses_.push_back(report.loss());
    if (losses_.size() > kSparklinePoints) {
      losses_.erase(losses_.begin());
    }
    if (!report.held_out().empty() || !report.evaluations().empty() || !report.samples().empty()) {
      results_.push_back(report);
    }
    if (report.has_validation_loss() && report.held_out().empty()) {
      lines_.push_back(
          absl::StrFormat("step %d: held-out loss %.4f", report.step(), report.validation_loss()));
      printed_step_ = std::max(printed_step_, report.step() - 1);
    }
  }

  // Returns true when the time ran out.
  bool Loop() {
    const absl::Duration start = Clock::Real().Monotonic();
    while (true) {
      const absl::Duration elapsed = Clock::Real().Monotonic() - start;
      absl::MutexLock lock(&mu_);
      if (options_.timeout > absl::ZeroDuration() && elapsed >= options_.timeout) {
        done_ = drawn_ = true;
        return true;
      }
      const bool finished =
          (done_ && (steps_done_ || !status_.ok() || Drained(elapsed))) || Interrupted();
      Draw(finished);
      if (finished) {
        done_ = drawn_ = true;
        return false;
      }
      Clock::Real().AwaitWithTimeout(mu_, absl::Condition(&never_), kRedraw);
    }
  }

  // A paused job's metric stream stays open: it is done when the job's last step has arrived. After
  // the pause, wait for missing steps only a short time.
  bool Drained(absl::Duration elapsed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    rested_at_ = std::min(rested_at_, elapsed);
    return reached_ == job_.step() || elapsed - rested_at_ > kLastStepsWithin;
  }

  // A line of stderr, which may be the terminal that the progress is drawn on.
  void Say(const std::string& line) const {
    // Back to the begin of the line, and erase it: Draw brings the progress again.
    if (terminal_) {
      WriteTerminal("\r\033[K");
    }
    WriteErr(absl::StrCat(line, "\n"));
  }

  void Draw(bool finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!changed_) {
      return;
    }
    changed_ = false;
    std::string out;
    if (std::string state = StateText(job_); !job_.job_id().empty() && state != shown_state_) {
      shown_state_ = state;
      lines_.push_back(std::move(state));
    }
    SayResults();
    for (const std::string& line : lines_) {
      const std::string safe = EscapeControl(absl::StrReplaceAll(line, {{"\n", " "}}), false);
      absl::StrAppend(&out, terminal_ ? "\r\033[K" : "",
                      terminal_ ? WrapText(safe, SizeOfTerminal().columns - 2, 2) : safe, "\n");
    }
    lines_.clear();
    if (last_.step() > 0) {
      if (terminal_) {
        absl::StrAppend(&out, "\r\033[K", ProgressLine(), finished ? "\n" : "");
      } else if (ProgressDue(job_, last_.step(), printed_step_, finished)) {
        printed_step_ = last_.step();
        absl::StrAppend(&out, ProgressText(job_, last_), "\n");
      }
    }
    WriteTerminal(out);
  }

  // What was evaluated is named by the job, which may come after the steps.
  void SayResults() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (job_.job_id().empty()) {
      return;
    }
    for (const v1::StepReport& report : results_) {
      for (std::string& text : spec::ReportTexts(job_, report)) {
        lines_.push_back(std::move(text));
      }
      for (std::string& text : spec::SampleTexts(report)) {
        lines_.push_back(std::move(text));
      }
    }
    results_.clear();
  }

  std::string Unit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::string(spec::StepUnit(job_.spec()));
  }

  std::string ProgressLine() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const int64_t steps = std::max<int64_t>(1, spec::TotalSteps(job_));
    const double share = static_cast<double>(last_.step()) / static_cast<double>(steps);
    const bool trains = spec::Trains(job_.spec());
    const std::string tail =
        trains ? absl::StrFormat(" %d/%d  loss %.4f ", last_.step(), steps, last_.loss())
               : absl::StrFormat(" %s %d/%d ", Unit(), last_.step(), steps);
    const std::string speed =
        trains ? absl::StrFormat("  %s tok/s  %s", FormatCount(last_.tokens_per_second()),
                                 EtaText(job_, last_))
               : absl::StrCat("  ", EtaText(job_, last_));
    const int room = SizeOfTerminal().columns - static_cast<int>(tail.size() + speed.size()) - 3;
    const int spark = utf8_ && trains ? std::clamp(room / 2, 0, kSparklineWidth) : 0;
    const int width = std::clamp(room - spark, 4, 30);
    const int full = static_cast<int>(std::lround(share * width));
    std::string bar = "[";
    bar.append(static_cast<size_t>(full), '=').append(static_cast<size_t>(width - full), ' ');
    return absl::StrCat(bar, "]", tail, Sparkline(losses_, spark), speed);
  }

  // Says how the job went once it has ended. Reads the whole history again: the curve drawn so far
  // may lack the last steps.
  absl::Status SumUp() {
    ReportFacts facts;
    {
      absl::MutexLock lock(&mu_);
      if (!status_.ok() || !Ended(job_.state()) || Interrupted()) {
        return absl::OkStatus();
      }
      facts.job = job_;
    }
    HEARTH_RETURN_IF_ERROR(RetryStream([&](const auto&) {
      HEARTH_ASSIGN_OR_RETURN(facts.history, LoadHistory(client_, options_.job_id));
      return absl::OkStatus();
    }));
    facts.prices = context_.prices;
    facts.temperature_limit = context_.temperature_limit;
    facts.now = Clock::Real().Now();
    WriteOut(RenderSummary(BuildReport(facts), FitColumns()));
    return absl::OkStatus();
  }

  absl::StatusOr<int> Conclude(bool timed_out) {
    absl::MutexLock lock(&mu_);
    if (Interrupted()) {
      SayDetached("watch", {options_.job_id});
      return kExitOk;
    }
    if (timed_out) {
      WriteErr(
          absl::StrCat("timed out; job/", options_.job_id, " is ", StateName(job_.state()), "\n"));
      return kExitTimedOut;
    }
    if (status_.code() == absl::StatusCode::kNotFound && options_.exit_status) {
      WriteErr(absl::StrCat("error: ", status_.message(), "\n"));
      return kExitNotFound;
    }
    HEARTH_RETURN_IF_ERROR(status_);
    return options_.exit_status ? ExitCodeOf(job_.state()) : kExitOk;
  }

  Client& client_;
  const Context& context_;
  const FollowOptions options_;
  const bool terminal_;
  const bool utf8_;
  const bool never_ = false;

  OutageNotice notice_{[this](const std::string& line) { Say(line); }};
  absl::Mutex mu_;
  v1::Job job_ ABSL_GUARDED_BY(mu_);
  v1::StepReport last_ ABSL_GUARDED_BY(mu_);
  std::vector<double> losses_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::StepReport> results_ ABSL_GUARDED_BY(mu_);  // with evaluations, not shown yet
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;   // the job rests, or need no longer be watched
  bool drawn_ ABSL_GUARDED_BY(mu_) = false;  // nor need its steps
  bool steps_done_ ABSL_GUARDED_BY(mu_) = false;
  int64_t reached_ ABSL_GUARDED_BY(mu_) = 0;  // the last step from the metric stream
  int64_t printed_step_ ABSL_GUARDED_BY(mu_) = 0;
  std::string shown_state_ ABSL_GUARDED_BY(mu_);
  absl::Duration rested_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
};

}  // namespace

absl::StatusOr<int> FollowJob(Context& context, const FollowOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  Follower follower(*client, context, options);
  return follower.Run();
}

}  // namespace hearth::jobctl
