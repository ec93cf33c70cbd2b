#include "jobctl/client.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/security.h"
#include "common/rpc/status.h"
#include "grpc/support/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "hearth/v1/job.grpc.pb.h"
#include "hearth/v1/worker.grpc.pb.h"

namespace hearth::jobctl {
namespace {

class GrpcClient : public Client {
 public:
  GrpcClient(std::shared_ptr<grpc::Channel> channel,
             std::string address,
             absl::Duration unary_deadline)
      : address_(std::move(address)),
        unary_deadline_(unary_deadline),
        jobs_(v1::JobService::NewStub(channel)),
        workers_(v1::WorkerService::NewStub(channel)) {}

  absl::StatusOr<v1::Job> CreateJob(const v1::CreateJobRequest& request) override {
    return Call<v1::Job>(*jobs_, &v1::JobService::Stub::CreateJob, request);
  }
  absl::StatusOr<v1::Job> GetJob(const v1::GetJobRequest& request) override {
    return Call<v1::Job>(*jobs_, &v1::JobService::Stub::GetJob, request);
  }
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request) override {
    return Call<v1::ListJobsResponse>(*jobs_, &v1::JobService::Stub::ListJobs, request);
  }
  absl::StatusOr<v1::Job> UpdateJob(const v1::UpdateJobRequest& request) override {
    return Call<v1::Job>(*jobs_, &v1::JobService::Stub::UpdateJob, request);
  }
  absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest& request) override {
    return Call<v1::Job>(*jobs_, &v1::JobService::Stub::CancelJob, request);
  }
  absl::StatusOr<v1::Job> PauseJob(const v1::PauseJobRequest& request) override {
    return Call<v1::Job>(*jobs_, &v1::JobService::Stub::PauseJob, request);
  }
  absl::StatusOr<v1::Job> ResumeJob(const v1::ResumeJobRequest& request) override {
    return Call<v1::Job>(*jobs_, &v1::JobService::Stub::ResumeJob, request);
  }
  absl::StatusOr<v1::DeleteJobResponse> DeleteJob(const v1::DeleteJobRequest& request) override {
    return Call<v1::DeleteJobResponse>(*jobs_, &v1::JobService::Stub::DeleteJob, request);
  }
  absl::StatusOr<v1::PruneCheckpointsResponse> PruneCheckpoints(
      const v1::PruneCheckpointsRequest& request) override {
    return Call<v1::PruneCheckpointsResponse>(*jobs_, &v1::JobService::Stub::PruneCheckpoints,
                                              request);
  }
  absl::StatusOr<v1::ListEventsResponse> ListEvents(const v1::ListEventsRequest& request) override {
    return Call<v1::ListEventsResponse>(*jobs_, &v1::JobService::Stub::ListEvents, request);
  }
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(
      const v1::ListCheckpointsRequest& request) override {
    return Call<v1::ListCheckpointsResponse>(*jobs_, &v1::JobService::Stub::ListCheckpoints,
                                             request);
  }
  absl::StatusOr<v1::GetVersionResponse> GetVersion() override {
    return Call<v1::GetVersionResponse>(*jobs_, &v1::JobService::Stub::GetVersion,
                                        v1::GetVersionRequest());
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(
      const v1::ListWorkersRequest& request) override {
    return Call<v1::ListWorkersResponse>(*workers_, &v1::WorkerService::Stub::ListWorkers, request);
  }
  absl::StatusOr<v1::Worker> GetWorker(const std::string& worker_id) override {
    return NamedWorker<v1::GetWorkerRequest>(&v1::WorkerService::Stub::GetWorker, worker_id);
  }
  absl::StatusOr<v1::Worker> CordonWorker(const std::string& worker_id) override {
    return NamedWorker<v1::CordonWorkerRequest>(&v1::WorkerService::Stub::CordonWorker, worker_id);
  }
  absl::StatusOr<v1::Worker> UncordonWorker(const std::string& worker_id) override {
    return NamedWorker<v1::UncordonWorkerRequest>(&v1::WorkerService::Stub::UncordonWorker,
                                                  worker_id);
  }
  absl::StatusOr<v1::Worker> DrainWorker(const std::string& worker_id) override {
    return NamedWorker<v1::DrainWorkerRequest>(&v1::WorkerService::Stub::DrainWorker, worker_id);
  }
  absl::StatusOr<v1::DeleteWorkerResponse> DeleteWorker(const std::string& worker_id) override {
    v1::DeleteWorkerRequest request;
    request.set_worker_id(worker_id);
    return Call<v1::DeleteWorkerResponse>(*workers_, &v1::WorkerService::Stub::DeleteWorker,
                                          request);
  }
  absl::StatusOr<v1::DeclareLostResponse> DeclareLost(
      const v1::DeclareLostRequest& request) override {
    return Call<v1::DeclareLostResponse>(*workers_, &v1::WorkerService::Stub::DeclareLost, request);
  }

  absl::Status WatchJob(const v1::WatchJobRequest& request,
                        const StreamSink<v1::WatchJobResponse>& sink) override {
    return Stream<v1::WatchJobResponse>(&v1::JobService::Stub::WatchJob, request, sink);
  }
  absl::Status StreamMetrics(const v1::StreamMetricsRequest& request,
                             const StreamSink<v1::StreamMetricsResponse>& sink) override {
    return Stream<v1::StreamMetricsResponse>(&v1::JobService::Stub::StreamMetrics, request, sink);
  }
  absl::Status StreamLogs(const v1::StreamLogsRequest& request,
                          const StreamSink<v1::StreamLogsResponse>& sink) override {
    return Stream<v1::StreamLogsResponse>(&v1::JobService::Stub::StreamLogs, request, sink);
  }

  void CancelStreams() override {
    absl::MutexLock lock(&mu_);
    streams_cancelled_ = true;
    for (grpc::ClientContext* context : streams_) {
      context->TryCancel();
    }
  }

 private:
  // Of a call that this client did not cancel.
  absl::Status Fail(const grpc::Status& status) const {
    if (status.error_code() == grpc::StatusCode::CANCELLED) {
      // A server that shuts down cancels the calls that reach it late: passing trouble.
      return absl::UnavailableError(
          absl::StrCat("the coordinator at ", address_, " stopped before it answered"));
    }
    const absl::Status error = rpc::FromGrpc(status);
    if (error.code() == absl::StatusCode::kUnavailable) {
      return Annotate(error, absl::StrCat("cannot reach the coordinator at ", address_,
                                          " (--coordinator or HEARTH_COORDINATOR sets it)"));
    }
    return error;
  }

  template <typename Response, typename Stub, typename Method, typename Request>
  absl::StatusOr<Response> Call(Stub& stub, Method method, const Request& request) {
    grpc::ClientContext context;
    rpc::SetDeadline(context, unary_deadline_);
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) {
      return Fail(status);
    }
    return response;
  }

  template <typename Request, typename Method>
  absl::StatusOr<v1::Worker> NamedWorker(Method method, const std::string& worker_id) {
    Request request;
    request.set_worker_id(worker_id);
    return Call<v1::Worker>(*workers_, method, request);
  }

  template <typename Response, typename Method, typename Request>
  absl::Status Stream(Method method, const Request& request, const StreamSink<Response>& sink) {
    grpc::ClientContext context;
    {
      absl::MutexLock lock(&mu_);
      if (streams_cancelled_) {
        return absl::CancelledError("interrupted");
      }
      streams_.insert(&context);
    }
    auto reader = ((*jobs_).*method)(&context, request);
    Response response;
    bool stopped = false;
    while (reader->Read(&response)) {
      if (!sink(response)) {
        stopped = true;
        context.TryCancel();
        break;
      }
    }
    const grpc::Status status = reader->Finish();
    absl::MutexLock lock(&mu_);
    streams_.erase(&context);
    if (stopped || status.ok()) {
      return absl::OkStatus();
    }
    return streams_cancelled_ ? absl::CancelledError("interrupted") : Fail(status);
  }

  const std::string address_;
  const absl::Duration unary_deadline_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::WorkerService::Stub> workers_;

  absl::Mutex mu_;
  bool streams_cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<grpc::ClientContext*> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ConnectOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(rpc::CoordinatorList list,
                          rpc::CoordinatorList::Parse(options.coordinators));
  const rpc::TlsFiles files = {options.tls_cert, options.tls_key, options.tls_ca};
  // With several, the first that answers within a second is used; with one, errors come from the
  // call itself.
  std::shared_ptr<grpc::Channel> channel;
  for (const std::string& address : list.addresses()) {
    HEARTH_ASSIGN_OR_RETURN(channel, rpc::Connect(address, files, /*use_tls=*/false));
    if (list.addresses().size() == 1 ||
        channel->WaitForConnected(gpr_time_from_seconds(1, GPR_TIMESPAN))) {
      return std::make_unique<GrpcClient>(channel, address, options.unary_deadline);
    }
  }
  return absl::UnavailableError(
      absl::StrCat("none of the coordinators answers: ", options.coordinators));
}

}  // namespace hearth::jobctl
