// Unary calls that are answered at once.
#pragma once

#include "absl/status/status.h"
#include "common/rpc/grpc_status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace hearth::coordinator {

inline grpc::ServerUnaryReactor* FinishNow(grpc::CallbackServerContext* context,
                                           const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpc(status));
  return reactor;
}

}  // namespace hearth::coordinator
