// WatchJob, StreamMetrics and StreamLogs.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/service/streams/stream_reactor.h"
#include "coordinator/store/store.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// Sends the job at once, then whenever it or its events have changed. Ends when the job is deleted.
class WatchReactor : public StreamReactor<v1::WatchJobResponse> {
 public:
  WatchReactor(Executor& executor, View& view, const v1::WatchJobRequest& request);

 protected:
  Next Produce(v1::WatchJobResponse& response, absl::Status& status) override;

 private:
  View& view_;
  const std::string job_id_;
  int64_t cursor_;
  JobPtr sent_;
};

// History from a cursor (all records) or from a step (voided ones left out), then live.
class MetricsReactor : public StreamReactor<v1::StreamMetricsResponse> {
 public:
  MetricsReactor(Executor& executor,
                 View& view,
                 Store& store,
                 const v1::StreamMetricsRequest& request);

 protected:
  Next Produce(v1::StreamMetricsResponse& response, absl::Status& status) override;

 private:
  // Finds the rewinds in the present history, for from_step.
  absl::Status FindRewinds(const SegmentLog& log);
  bool IsVoided(int64_t cursor, int64_t step) const;

  View& view_;
  Store& store_;
  const v1::StreamMetricsRequest request_;
  SegmentLog::ReadState state_;
  bool rewinds_known_ = false;
  int64_t rewinds_through_ = 0;
  // (cursor, lowest to_step of the rewind there and all later ones), ascending cursor.
  std::vector<std::pair<int64_t, int64_t>> rewinds_;
};

// The log from a cursor or the last lines, then live.
class LogsReactor : public StreamReactor<v1::StreamLogsResponse> {
 public:
  LogsReactor(Executor& executor, View& view, Store& store, const v1::StreamLogsRequest& request);

 protected:
  Next Produce(v1::StreamLogsResponse& response, absl::Status& status) override;

 private:
  // Moves state_ to the first of the last `tail` lines that match.
  absl::Status SkipToTail(const SegmentLog& log);
  bool Wanted(const v1::LogLine& line) const;

  View& view_;
  Store& store_;
  const v1::StreamLogsRequest request_;
  SegmentLog::ReadState state_;
  bool tail_done_ = false;
};

}  // namespace hearth::coordinator
