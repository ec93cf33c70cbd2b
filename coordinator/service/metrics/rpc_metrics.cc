#include "coordinator/service/metrics/rpc_metrics.h"

#include <atomic>

#include "common/base/status_macros.h"
#include "grpcpp/support/status.h"

namespace hearth::coordinator {
namespace {

const char* CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "Unknown";
}

class RpcMetricsInterceptor : public grpc::experimental::Interceptor {
 public:
  RpcMetricsInterceptor(CoordinatorMetrics& metrics, Clock& clock, std::string method)
      : metrics_(metrics), clock_(clock), method_(std::move(method)), start_(clock.Monotonic()) {
    metrics_.RpcStarted(method_);
  }
  // A call may end before it has a status to send.
  ~RpcMetricsInterceptor() override { End("Canceled"); }
  RpcMetricsInterceptor(const RpcMetricsInterceptor&) = delete;
  RpcMetricsInterceptor& operator=(const RpcMetricsInterceptor&) = delete;

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      End(CodeName(methods->GetSendStatus().error_code()));
    }
    methods->Proceed();
  }

 private:
  void End(const char* code) {
    if (!ended_.exchange(true)) {
      metrics_.RpcHandled(method_, code, clock_.Monotonic() - start_);
    }
  }

  CoordinatorMetrics& metrics_;
  Clock& clock_;
  const std::string method_;
  const absl::Duration start_;
  std::atomic<bool> ended_ = false;
};

}  // namespace

grpc::experimental::Interceptor* RpcMetricsFactory::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new RpcMetricsInterceptor(metrics_, clock_, info->method());
}

}  // namespace hearth::coordinator
