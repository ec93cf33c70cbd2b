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
#include "google/protobuf/message.h"
#include "hearth/v1/coordinator.pb.h"
#include "hearth/v1/generate.pb.h"
#include "hearth/v1/identity.pb.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/plan.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::jobctl {

struct ConnectOptions {
  std::string coordinators;  // "host:port" or a comma-separated list, tried in order
  std::string tls_ca;        // PEM file; TLS when any of the three is set
  std::string tls_cert;
  std::string tls_key;
  std::string token_file;  // "" = the file that a coordinator of this machine left for us, if any
  std::string act_as;      // the user that an admin acts as; "" = nobody
  bool insecure = false;   // a token may travel in clear text
  absl::Duration unary_deadline = absl::Seconds(10);
};

// Return false to end the stream (then the call returns OK).
template <typename Response>
using StreamSink = std::function<bool(const Response&)>;

// The error is about who calls: there is no usable token, or the coordinator refuses the caller or
// what it asks for.
bool IsRefusedCaller(const absl::Status& status);

// Thread-safe. Every call sets a deadline (streams: none, keepalive instead). Errors keep the
// coordinator's details; kUnavailable names the address that was tried.
class Client {
 public:
  // kInvalidArgument, kNotFound and kPermissionDenied (with IsRefusedCaller): the token file cannot
  // be used, or the token would travel in clear text.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ConnectOptions& options);
  virtual ~Client() = default;

  // A unary call: the one of the coordinator's services whose request is a `Request`; each has a
  // request type of its own. `Response` is that call's.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(const Request& request) {
    Response response;
    absl::Status status = CallUnary(request, response);
    if (!status.ok()) {
      return status;
    }
    return response;
  }

  // Block until the stream ends, the sink returns false (OK) or CancelStreams is called
  // (kCancelled). A stream that the coordinator cancels (it stops) ends with kUnavailable.
  virtual absl::Status WatchJob(const v1::WatchJobRequest& request,
                                const StreamSink<v1::WatchJobResponse>& sink) = 0;
  virtual absl::Status StreamMetrics(const v1::StreamMetricsRequest& request,
                                     const StreamSink<v1::StreamMetricsResponse>& sink) = 0;
  virtual absl::Status StreamLogs(const v1::StreamLogsRequest& request,
                                  const StreamSink<v1::StreamLogsResponse>& sink) = 0;
  virtual absl::Status DownloadCheckpoint(
      const v1::DownloadCheckpointRequest& request,
      const StreamSink<v1::DownloadCheckpointResponse>& sink) = 0;
  virtual absl::Status SampleCheckpoint(const v1::SampleCheckpointRequest& request,
                                        const StreamSink<v1::SampleCheckpointResponse>& sink) = 0;

  // Ends all streams, present and future. For Ctrl-C and deadlines; any thread.
  virtual void CancelStreams() = 0;

 private:
  virtual absl::Status CallUnary(const google::protobuf::Message& request,
                                 google::protobuf::Message& response) = 0;
};

}  // namespace hearth::jobctl
