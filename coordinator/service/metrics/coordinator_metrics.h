// The coordinator's metrics: its own (registry) and those of jobs and workers (made at each scrape
// from the view). A scrape takes no lock for longer than it takes to copy pointers: those of the
// view, and of what the loop adds per step, which is swapped in behind them. What is kept per job
// is that of jobs that have not ended and of the kRecentJobs that ended last.
//
// Series are bounded: jobs that have started and live, then the kRecentJobs that ended last, then
// waiting ones, kJobsMax in all; what that leaves out is counted in hearth_series_dropped_total. A
// job takes at most kSeriesPerJob series, and all that is not of a job at most kSeriesFixed, so
// that a scrape has at most kJobsMax * kSeriesPerJob + kSeriesFixed.
//
// Label values that are known beforehand (causes, reasons, methods, commands) are there from the
// start at 0, so that an increase() does not miss the first event.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "coordinator/core/core.h"
#include "coordinator/service/metrics/own_metrics.h"
#include "coordinator/service/metrics/step_totals.h"
#include "coordinator/service/view/view.h"

namespace hearth::coordinator {

inline constexpr size_t kRecentJobs = 100;
inline constexpr size_t kJobsMax = 500;
inline constexpr size_t kSeriesPerJob = 120;
inline constexpr size_t kSeriesFixed = 2000;

// Every family of Render but those that every program has: the rows of docs/metrics.md.
std::vector<metrics::MetricDef> CoordinatorMetricDefs();

// Reason codes with which a job may go into RECOVERING and come back.
std::vector<std::string> RecoveryCauses();

// What is accumulated for one job since this coordinator started. Immutable once published.
struct JobSeries {
  explicit JobSeries(const v1::StepReport& before) : steps(before) {}

  std::map<std::string, int64_t> restarts;  // by cause
  StepTotals steps;
  double checkpoint_write_seconds = 0;  // of the newest, 0 = none was written
};

// Thread-safe; the Observe calls belong to the loop.
class CoordinatorMetrics {
 public:
  // `generation`, `set_aside`: what OwnMetrics exports under these names.
  explicit CoordinatorMetrics(int64_t generation, int64_t set_aside = 0);

  // `view` is as it was before the effects.
  void Observe(const std::vector<Effects>& effects, const View& view) ABSL_LOCKS_EXCLUDED(mu_);
  void ObserveCommit(absl::Duration duration, size_t commands);
  // One pass in which the scheduler planned.
  void ObservePlan(absl::Duration duration);
  void ObserveTurn(absl::Duration duration);
  void CountCommand(const Command& command);
  void SetQueueLength(int64_t length);
  void SetAgents(int64_t connected);
  // An agent's stream ended with INVALID_ARGUMENT.
  void CountAgentViolation();
  void SetIsolated(bool isolated);
  void SetPendingNotifications(int64_t pending);
  bool isolated() const { return own_.isolated->Value() > 0.0; }

  // `method` is "/hearth.v1.JobService/GetJob"; `code` a gRPC status code's name.
  void RpcStarted(std::string_view method);
  void RpcHandled(std::string_view method, std::string_view code, absl::Duration duration);

  // Jobs that have running totals.
  size_t jobs_kept() ABSL_LOCKS_EXCLUDED(mu_);

  // The whole of /metrics.
  std::string Render(const View& view) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using SeriesPtr = std::shared_ptr<const JobSeries>;

  void AddKnownLabels();
  void ObserveEvent(const v1::JobEvent& event, const View& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ObserveStep(const std::string& job_id, const v1::StepReport& step, const View& view)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the job that ended longest ago when more than kRecentJobs have.
  void NoteEnd(const std::string& job_id, bool ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  JobSeries CopySeries(const std::string& job_id, const View& view) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  OwnMetrics own_;
  metrics::ProcessMetrics process_;

  absl::Mutex mu_;
  std::map<std::string, SeriesPtr> series_ ABSL_GUARDED_BY(mu_);
  // Jobs that ended since this coordinator started, the latest last; at most kRecentJobs.
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mu_);
  // When each job entered the state it is in, and since when and why it recovers.
  std::map<std::string, absl::Time> entered_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::pair<absl::Time, std::string>> recovering_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
