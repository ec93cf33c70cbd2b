// Unary calls: how a service names one, and those that are answered at once.
#pragma once

#include "absl/status/status.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/service/api/service_parts.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

// The method of a service for the RPC `Name`, by its name in the proto: the types of its parameters
// `context`, `request` and `response` follow from it. `Response` is a message of v1.
//   HEARTH_UNARY(GetJob, Job) override;
#define HEARTH_UNARY(Name, Response)                                   \
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context, \
                                 const v1::Name##Request* request, v1::Response* response)
// Its definition outside of the class `Service`.
#define HEARTH_UNARY_OF(Service, Name, Response)                                \
  grpc::ServerUnaryReactor* Service::Name(grpc::CallbackServerContext* context, \
                                          const v1::Name##Request* request,     \
                                          v1::Response* response)

namespace hearth::coordinator {

inline grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context,
                                           const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpc(status));
  return reactor;
}

// A call that only reads: finishes with the status of `read()` once the gate lets the caller in.
template <typename Request, typename Read>
grpc::ServerUnaryReactor* Answer(const ServiceParts& parts,
                                 grpc::CallbackServerContext* context,
                                 const Request& request,
                                 const Read& read) {
  absl::Status status = parts.gate.Admit(*context, request).status();
  if (status.ok()) {
    status = read();
  }
  return FinishNow(context, status);
}

}  // namespace hearth::coordinator
