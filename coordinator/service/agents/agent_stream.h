// One agent's stream. Messages are checked (agent_rules.h) and become commands in the order they
// came; at most kInFlightMax of them wait for the loop, then reading pauses and gRPC's flow control
// holds the agent back. A message out of bounds ends the stream with INVALID_ARGUMENT.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/api/service_parts.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::coordinator {

// Keeps itself alive from Start until gRPC is done with it.
class AgentStream : public grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>,
                    public AgentLink,
                    public std::enable_shared_from_this<AgentStream> {
 public:
  static constexpr int kInFlightMax = 256;
  // Messages that may wait for an agent that does not read.
  static constexpr size_t kOutgoingMax = 8192;

  AgentStream(grpc::CallbackServerContext* context,
              const ServiceParts& parts,
              uint64_t connection_id)
      : context_(context),
        loop_(parts.loop),
        hub_(parts.hub),
        inspector_(parts.inspector),
        metrics_(parts.metrics),
        clock_(parts.clock),
        gate_(parts.gate),
        sessions_(parts.sessions),
        connection_id_(connection_id) {}

  void Start();

  // AgentLink
  void Send(v1::CoordinatorMessage message) override ABSL_LOCKS_EXCLUDED(mu_);
  void Close(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mu_);

  // Reactor
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnCancel() override;
  void OnDone() override;

 private:
  // Posts the command of incoming_, or closes the stream.
  void Dispatch();
  void TakeHello();
  void PostCommand(Command command);
  void CommandDone(const Reply& reply) ABSL_LOCKS_EXCLUDED(mu_);
  // Starts the next write or the end, whichever is due; to be called without the lock.
  void Advance() ABSL_LOCKS_EXCLUDED(mu_);

  grpc::CallbackServerContext* const context_;
  Loop& loop_;
  AgentHub& hub_;
  Inspector& inspector_;
  CoordinatorMetrics& metrics_;
  Clock& clock_;
  Gate& gate_;
  Sessions& sessions_;
  const uint64_t connection_id_;
  std::shared_ptr<AgentStream> self_;
  v1::AgentMessage incoming_;
  // Only the reading thread uses these.
  Admitted caller_;
  bool greeted_ = false;
  std::string checkpoint_root_;  // of the Hello

  absl::Mutex mu_;
  std::deque<v1::CoordinatorMessage> outgoing_ ABSL_GUARDED_BY(mu_);  // front is being written
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool read_paused_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hearth::coordinator
