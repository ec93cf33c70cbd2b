// Calls to the coordinator, without gRPC in the header: the commands see messages and absl::Status
// only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::jobctl {

struct ConnectOptions {
  std::string coordinators;  // "host:port" or a comma-separated list, tried in order
  std::string tls_ca;        // PEM file; TLS when any of the three is set
  std::string tls_cert;
  std::string tls_key;
  absl::Duration unary_deadline = absl::Seconds(10);
};

// Return false to end the stream (then the call returns OK).
template <typename Response>
using StreamSink = std::function<bool(const Response&)>;

// Thread-safe. Every call sets a deadline (streams: none, keepalive instead). Errors keep the
// coordinator's details; kUnavailable names the address that was tried.
class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ConnectOptions& options);
  virtual ~Client() = default;

  virtual absl::StatusOr<v1::Job> CreateJob(const v1::CreateJobRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> GetJob(const v1::GetJobRequest& request) = 0;
  virtual absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> UpdateJob(const v1::UpdateJobRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> PauseJob(const v1::PauseJobRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> ResumeJob(const v1::ResumeJobRequest& request) = 0;
  virtual absl::StatusOr<v1::DeleteJobResponse> DeleteJob(const v1::DeleteJobRequest& request) = 0;
  virtual absl::StatusOr<v1::PruneCheckpointsResponse> PruneCheckpoints(
      const v1::PruneCheckpointsRequest& request) = 0;
  virtual absl::StatusOr<v1::ListEventsResponse> ListEvents(
      const v1::ListEventsRequest& request) = 0;
  virtual absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(
      const v1::ListCheckpointsRequest& request) = 0;
  virtual absl::StatusOr<v1::GetVersionResponse> GetVersion() = 0;
  virtual absl::StatusOr<v1::ListWorkersResponse> ListWorkers(
      const v1::ListWorkersRequest& request) = 0;
  virtual absl::StatusOr<v1::Worker> GetWorker(const std::string& worker_id) = 0;
  virtual absl::StatusOr<v1::Worker> CordonWorker(const std::string& worker_id) = 0;
  virtual absl::StatusOr<v1::Worker> UncordonWorker(const std::string& worker_id) = 0;
  virtual absl::StatusOr<v1::Worker> DrainWorker(const std::string& worker_id) = 0;
  virtual absl::StatusOr<v1::DeleteWorkerResponse> DeleteWorker(const std::string& worker_id) = 0;
  virtual absl::StatusOr<v1::DeclareLostResponse> DeclareLost(
      const v1::DeclareLostRequest& request) = 0;

  // Block until the stream ends, the sink returns false (OK) or CancelStreams is called
  // (kCancelled). A stream that the coordinator cancels (it stops) ends with kUnavailable.
  virtual absl::Status WatchJob(const v1::WatchJobRequest& request,
                                const StreamSink<v1::WatchJobResponse>& sink) = 0;
  virtual absl::Status StreamMetrics(const v1::StreamMetricsRequest& request,
                                     const StreamSink<v1::StreamMetricsResponse>& sink) = 0;
  virtual absl::Status StreamLogs(const v1::StreamLogsRequest& request,
                                  const StreamSink<v1::StreamLogsResponse>& sink) = 0;

  // Ends all streams, present and future. For Ctrl-C and deadlines; any thread.
  virtual void CancelStreams() = 0;
};

}  // namespace hearth::jobctl
