// How a stream about one job begins.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/rpc/peer.h"
#include "coordinator/core/core.h"
#include "coordinator/service/api/service_parts.h"
#include "coordinator/service/streams/stream_reactor.h"

namespace hearth::coordinator {

// It ends at once when the gate refuses it, and later when the caller's token ends.
template <typename Stream, typename Request>
Stream* OpenStream(const ServiceParts& parts,
                   grpc::CallbackServerContext* context,
                   const Request& request,
                   const std::shared_ptr<Stream>& stream) {
  const absl::StatusOr<Admitted> caller = parts.gate.Admit(*context, request);
  if (caller.ok()) {
    parts.view.Subscribe(request.job_id(), stream);
    parts.sessions.Add(caller->token,
                       [weak = std::weak_ptr<StreamBase>(stream)](const absl::Status& status) {
                         const std::shared_ptr<StreamBase> running = weak.lock();
                         if (running != nullptr && !status.ok()) {
                           running->EndWith(status);
                         }
                         return running != nullptr;
                       });
  }
  stream->Start(parts.streams, rpc::AddressOfPeer(context->peer()), caller.status());
  return stream.get();
}

// A checkpoint of the job; `step` 0: the newest. kNotFound: no such job or step.
absl::StatusOr<v1::Checkpoint> FindCheckpoint(const Core& core,
                                              const std::string& job_id,
                                              int64_t step);

}  // namespace hearth::coordinator
