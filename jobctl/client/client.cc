#include "jobctl/client/client.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/io/home.h"
#include "common/rpc/bearer.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/security.h"
#include "google/protobuf/descriptor.h"
#include "grpc/support/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/rpc_method.h"
#include "hearth/v1/generate.grpc.pb.h"
#include "hearth/v1/job.grpc.pb.h"
#include "jobctl/client/address.h"

namespace hearth::jobctl {
namespace {

// The unary call whose request is a `request`; null if no call takes it.
const google::protobuf::MethodDescriptor* MethodOf(const google::protobuf::Descriptor& request) {
  const auto& pool = *google::protobuf::DescriptorPool::generated_pool();
  for (const char* name :
       {"hearth.v1.JobService", "hearth.v1.WorkerService", "hearth.v1.IdentityService",
        "hearth.v1.CoordinatorService", "hearth.v1.GenerateService", "hearth.v1.PlanService"}) {
    const google::protobuf::ServiceDescriptor* service = pool.FindServiceByName(name);
    for (int i = 0; i < service->method_count(); ++i) {
      const google::protobuf::MethodDescriptor* method = service->method(i);
      if (method->input_type() == &request && !method->server_streaming()) {
        return method;
      }
    }
  }
  return nullptr;
}

constexpr const char* kRefusedCaller = "hearth.jobctl/refused-caller";

absl::Status RefusedCaller(absl::Status status) {
  if (!status.ok()) {
    status.SetPayload(kRefusedCaller, absl::Cord());
  }
  return status;
}

// Where a token would come from that was not found.
std::string WithoutToken(const std::string& address) {
  const auto parsed = rpc::ParseHostPort(address);
  const std::string home = HearthHome();
  const bool local = parsed.ok() && rpc::IsLoopback(parsed->host) && !home.empty();
  return absl::StrCat(
      "no token for ", address, ": give --token-file FILE, or ask an admin for one (jobctl token ",
      "create)",
      local ? absl::StrCat("; the coordinator leaves one for its own account in ",
                           rpc::LocalTokenPath(home, parsed->port, rpc::LocalToken::kAdmin),
                           " when it runs with the same HEARTH_HOME")
            : "");
}

// What to send to the coordinator at `address`.
absl::StatusOr<rpc::Credentials> CredentialsFor(const std::string& address,
                                                const ConnectOptions& options,
                                                bool tls) {
  rpc::Credentials credentials{.token = "", .act_as = options.act_as};
  absl::StatusOr<std::string> token =
      rpc::FindToken(address, options.token_file, rpc::LocalToken::kAdmin);
  if (!token.ok()) {
    return RefusedCaller(Annotate(token.status(), "token"));
  }
  credentials.token = *std::move(token);
  const absl::Status secret =
      rpc::CheckTokenStaysSecret(address, credentials, tls, options.insecure);
  if (!secret.ok()) {
    return RefusedCaller(secret);
  }
  return credentials;
}

class GrpcClient : public Client {
 public:
  GrpcClient(std::shared_ptr<grpc::Channel> channel,
             std::string address,
             rpc::Credentials credentials,
             absl::Duration unary_deadline)
      : address_(std::move(address)),
        credentials_(std::move(credentials)),
        unary_deadline_(unary_deadline),
        jobs_(v1::JobService::NewStub(channel)),
        texts_(v1::GenerateService::NewStub(channel)),
        channel_(std::move(channel)) {}

  absl::Status WatchJob(const v1::WatchJobRequest& request,
                        const StreamSink<v1::WatchJobResponse>& sink) override {
    return Stream<v1::WatchJobResponse>(*jobs_, &v1::JobService::Stub::WatchJob, request, sink);
  }
  absl::Status StreamMetrics(const v1::StreamMetricsRequest& request,
                             const StreamSink<v1::StreamMetricsResponse>& sink) override {
    return Stream<v1::StreamMetricsResponse>(*jobs_, &v1::JobService::Stub::StreamMetrics, request,
                                             sink);
  }
  absl::Status StreamLogs(const v1::StreamLogsRequest& request,
                          const StreamSink<v1::StreamLogsResponse>& sink) override {
    return Stream<v1::StreamLogsResponse>(*jobs_, &v1::JobService::Stub::StreamLogs, request, sink);
  }
  absl::Status DownloadCheckpoint(const v1::DownloadCheckpointRequest& request,
                                  const StreamSink<v1::DownloadCheckpointResponse>& sink) override {
    return Stream<v1::DownloadCheckpointResponse>(*jobs_, &v1::JobService::Stub::DownloadCheckpoint,
                                                  request, sink);
  }
  absl::Status SampleCheckpoint(const v1::SampleCheckpointRequest& request,
                                const StreamSink<v1::SampleCheckpointResponse>& sink) override {
    return Stream<v1::SampleCheckpointResponse>(
        *texts_, &v1::GenerateService::Stub::SampleCheckpoint, request, sink);
  }

  void CancelStreams() override {
    absl::MutexLock lock(&mu_);
    streams_cancelled_ = true;
    for (grpc::ClientContext* context : streams_) {
      context->TryCancel();
    }
  }

 private:
  // The error of a call that this client did not cancel itself.
  absl::Status Fail(const grpc::Status& status) const {
    if (status.error_code() == grpc::StatusCode::CANCELLED) {
      // A server that shuts down cancels calls that reach it late; a retry may succeed.
      return absl::UnavailableError(
          absl::StrCat("the coordinator at ", address_, " stopped before it answered"));
    }
    const absl::Status error = rpc::FromGrpc(status);
    // With a reason it is the coordinator's own word, about a worker.
    if (error.code() == absl::StatusCode::kUnavailable && rpc::ErrorReason(error).empty()) {
      const std::string grpc_text(error.message());
      return Annotate(error, absl::StrCat("cannot reach the coordinator at ", address_, " (",
                                          WhenUnreachable(address_, grpc_text), ")"));
    }
    if (error.code() == absl::StatusCode::kUnauthenticated) {
      return RefusedCaller(credentials_.token.empty() ? Annotate(error, WithoutToken(address_))
                                                      : error);
    }
    return error.code() == absl::StatusCode::kPermissionDenied ? RefusedCaller(error) : error;
  }

  absl::Status CallUnary(const google::protobuf::Message& request,
                         google::protobuf::Message& response) override {
    const google::protobuf::MethodDescriptor* method = MethodOf(*request.GetDescriptor());
    HEARTH_CHECK(method != nullptr && method->output_type() == response.GetDescriptor(),
                 "a call's request has a type of its own, and its response is that call's");
    const std::string name = absl::StrCat("/", method->service()->full_name(), "/", method->name());
    grpc::ClientContext context;
    rpc::Authorize(context, credentials_);
    rpc::SetDeadline(context, unary_deadline_);
    HEARTH_RETURN_IF_ERROR(fault::Check("jobctl.call"));
    // What generated stubs do for a unary call.
    const grpc::internal::RpcMethod rpc(name.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    const grpc::Status status = grpc::internal::BlockingUnaryCall<google::protobuf::MessageLite,
                                                                  google::protobuf::MessageLite>(
        channel_.get(), rpc, &context, request, &response);
    return status.ok() ? fault::Check("jobctl.answer") : Fail(status);
  }

  template <typename Response, typename Stub, typename Method, typename Request>
  absl::Status Stream(Stub& stub,
                      Method method,
                      const Request& request,
                      const StreamSink<Response>& sink) {
    grpc::ClientContext context;
    rpc::Authorize(context, credentials_);
    {
      absl::MutexLock lock(&mu_);
      // An interrupt before this point has no stream to cancel yet.
      if (streams_cancelled_) {
        return absl::CancelledError("interrupted");
      }
      streams_.insert(&context);
    }
    auto reader = (stub.*method)(&context, request);
    Response response;
    bool stopped = false;
    absl::Status broken;
    while (reader->Read(&response)) {
      // Like a broken connection: who can open another stream does. The call may have ended well,
      // but this message is lost.
      if (const absl::Status fault = fault::Check("jobctl.stream"); !fault.ok()) {
        broken = absl::UnavailableError(fault.message());
        context.TryCancel();
        break;
      }
      if (!sink(response)) {
        stopped = true;
        context.TryCancel();
        break;
      }
    }
    const grpc::Status status = reader->Finish();
    absl::MutexLock lock(&mu_);
    streams_.erase(&context);
    HEARTH_RETURN_IF_ERROR(broken);
    // The status of a stream that we ended ourselves is CANCELLED, and no error.
    if (stopped || status.ok()) {
      return absl::OkStatus();
    }
    return streams_cancelled_ ? absl::CancelledError("interrupted") : Fail(status);
  }

  const std::string address_;
  const rpc::Credentials credentials_;
  const absl::Duration unary_deadline_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::GenerateService::Stub> texts_;
  const std::shared_ptr<grpc::Channel> channel_;

  absl::Mutex mu_;
  bool streams_cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<grpc::ClientContext*> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

bool IsRefusedCaller(const absl::Status& status) {
  return status.GetPayload(kRefusedCaller).has_value();
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ConnectOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(rpc::CoordinatorList list,
                          rpc::CoordinatorList::Parse(CleanAddresses(options.coordinators)));
  const rpc::TlsFiles files = {options.tls_cert, options.tls_key, options.tls_ca};
  // With several, the first that answers within a second is used; with one, errors come from the
  // call itself.
  std::shared_ptr<grpc::Channel> channel;
  for (const std::string& address : list.addresses()) {
    HEARTH_ASSIGN_OR_RETURN(channel, rpc::Connect(address, files, /*use_tls=*/false));
    if (list.addresses().size() == 1 ||
        channel->WaitForConnected(gpr_time_from_seconds(1, GPR_TIMESPAN))) {
      HEARTH_ASSIGN_OR_RETURN(rpc::Credentials credentials,
                              CredentialsFor(address, options, files.any()));
      return std::make_unique<GrpcClient>(channel, address, std::move(credentials),
                                          options.unary_deadline);
    }
  }
  return absl::UnavailableError(
      absl::StrCat("none of the coordinators answers: ", options.coordinators, " (",
                   WhenUnreachable(list.addresses().front(), ""), ")"));
}

}  // namespace hearth::jobctl
