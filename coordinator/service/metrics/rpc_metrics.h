// Counts RPCs by method and status code, as go-grpc-prometheus does.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/time/clock.h"
#include "coordinator/service/metrics/coordinator_metrics.h"
#include "grpcpp/support/server_interceptor.h"

namespace hearth::coordinator {

// Both references outlive the server.
class RpcMetricsFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  RpcMetricsFactory(CoordinatorMetrics& metrics, Clock& clock) : metrics_(metrics), clock_(clock) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  CoordinatorMetrics& metrics_;
  Clock& clock_;
};

}  // namespace hearth::coordinator
