// A coordinator for jobctl's tests that answers no stream; a test derives what it needs from it.
#pragma once

#include "absl/status/status.h"
#include "jobctl/client/client.h"

namespace hearth::jobctl {

class UnaryClient : public Client {
 public:
  absl::Status WatchJob(const v1::WatchJobRequest&,
                        const StreamSink<v1::WatchJobResponse>&) override {
    return absl::UnimplementedError("");
  }
  absl::Status StreamMetrics(const v1::StreamMetricsRequest&,
                             const StreamSink<v1::StreamMetricsResponse>&) override {
    return absl::UnimplementedError("");
  }
  absl::Status StreamLogs(const v1::StreamLogsRequest&,
                          const StreamSink<v1::StreamLogsResponse>&) override {
    return absl::UnimplementedError("");
  }
  absl::Status SampleCheckpoint(const v1::SampleCheckpointRequest&,
                                const StreamSink<v1::SampleCheckpointResponse>&) override {
    return absl::UnimplementedError("");
  }
  absl::Status DownloadCheckpoint(const v1::DownloadCheckpointRequest&,
                                  const StreamSink<v1::DownloadCheckpointResponse>&) override {
    return absl::UnimplementedError("");
  }
  void CancelStreams() override {}
};

}  // namespace hearth::jobctl
