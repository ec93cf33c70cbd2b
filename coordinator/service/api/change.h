// Unary calls that change something: a request becomes a command of the loop, and what the core
// replies becomes the response.
#pragma once

#include <utility>

#include "coordinator/core/core.h"
#include "coordinator/service/api/service_parts.h"
#include "coordinator/service/api/unary_call.h"
#include "coordinator/service/identity/gate.h"
#include "coordinator/service/loop/loop.h"

namespace hearth::coordinator {

// The part of a reply that the response is made of; responses without one are empty messages.
inline const std::optional<v1::Job>& PartOf(const Reply& reply, const v1::Job*) {
  return reply.job;
}
inline const std::optional<v1::Worker>& PartOf(const Reply& reply, const v1::Worker*) {
  return reply.worker;
}
inline const std::optional<v1::DeleteJobResponse>& PartOf(const Reply& reply,
                                                          const v1::DeleteJobResponse*) {
  return reply.deleted;
}
inline const std::optional<v1::DeclareLostResponse>& PartOf(const Reply& reply,
                                                            const v1::DeclareLostResponse*) {
  return reply.declared;
}
inline const std::optional<v1::PruneCheckpointsResponse>& PartOf(
    const Reply& reply, const v1::PruneCheckpointsResponse*) {
  return reply.pruned;
}
inline const std::optional<v1::Token>& PartOf(const Reply& reply, const v1::Token*) {
  return reply.token;
}
template <typename Response>
std::optional<Response> PartOf(const Reply&, const Response*) {
  return std::nullopt;
}

// Posts `command` and finishes the call with its reply. `response` lives until then.
template <typename Response>
void PostChange(Loop& loop,
                const Command& command,
                grpc::ServerUnaryReactor* reactor,
                Response* response) {
  loop.Post(command, [reactor, response](const Reply& reply) {
    if (const auto& part = PartOf(reply, response); part.has_value()) {
      *response = *part;
    }
    reactor->Finish(rpc::ToGrpc(reply.status));
  });
}

// The whole of a call whose request is a command (core_commands.h): the gate lets it in, then it is
// applied.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* Change(const ServiceParts& parts,
                                 grpc::CallbackServerContext* context,
                                 const Request& request,
                                 Response* response) {
  const absl::StatusOr<Admitted> caller = parts.gate.Admit(*context, request);
  if (!caller.ok()) {
    return FinishNow(context, caller.status());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  PostChange(parts.loop, Command(request).By(OriginOf(*caller, request)), reactor, response);
  return reactor;
}

}  // namespace hearth::coordinator

// The method of a service, which has `parts_`, for an RPC that is a `Change`:
//   HEARTH_CHANGE(CancelJob, Job)
#define HEARTH_CHANGE(Name, Response)                   \
  HEARTH_UNARY(Name, Response) override {               \
    return Change(parts_, context, *request, response); \
  }
