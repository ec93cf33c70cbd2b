#include "coordinator/service/agents/agent_stream.h"

#include <utility>

#include "common/fault/fault.h"
#include "common/io/sha256.h"
#include "common/log/log.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer.h"
#include "coordinator/service/agents/agent_route.h"
#include "coordinator/service/agents/agent_rules.h"

namespace hearth::coordinator {

void AgentStream::Start() {
  // gRPC uses this object until OnDone, which lets go of it.
  self_ = shared_from_this();
  absl::StatusOr<Admitted> caller = gate_.Admit(*context_, v1::AgentMessage());
  if (!caller.ok()) {
    Close(caller.status());
    return;
  }
  caller_ = *std::move(caller);
  sessions_.Add(caller_.token, [weak = weak_from_this()](const absl::Status& status) {
    const std::shared_ptr<AgentStream> stream = weak.lock();
    if (stream != nullptr && !status.ok()) {
      stream->Close(status);
    }
    return stream != nullptr;
  });
  const absl::Status added = hub_.AddWaiting(connection_id_, rpc::AddressOfPeer(context_->peer()),
                                             clock_.Monotonic() + AgentHub::kHelloDeadline, self_);
  if (!added.ok()) {
    Close(added);
    return;
  }
  StartRead(&incoming_);
}

void AgentStream::OnReadDone(bool ok) {
  if (!ok) {  // the agent closed its side, or the stream is broken
    Close(absl::OkStatus());
    return;
  }
  if (const absl::Status fault = fault::Check("coordinator.receive"); fault.ok()) {
    Dispatch();
  } else {
    Close(fault);
  }
  {
    absl::MutexLock lock(&mu_);
    if (closing_) {
      return;
    }
    if (in_flight_ >= kInFlightMax) {
      // CommandDone reads on. Until then gRPC's flow control stops the agent from sending.
      read_paused_ = true;
      return;
    }
  }
  StartRead(&incoming_);
}

void AgentStream::Dispatch() {
  if (greeted_ == incoming_.has_hello()) {
    Close(rpc::MakeError(absl::StatusCode::kInvalidArgument,
                         greeted_ ? "a second Hello" : "the first message must be Hello",
                         "BAD_STREAM"));
    return;
  }
  if (const absl::Status status = CheckAgentMessage(incoming_, checkpoint_root_); !status.ok()) {
    HEARTH_LOG_WARNING("connection {} from {}: {}", connection_id_, context_->peer(),
                       std::string(status.message()));
    Close(status);
    return;
  }
  if (incoming_.has_hello()) {
    TakeHello();
    return;
  }
  AgentRoute route = RouteAgentMessage(connection_id_, incoming_);
  if (route.command.has_value()) {
    PostCommand(*std::move(route.command));
  } else if (route.answer_to.has_value()) {
    inspector_.OnAnswer(connection_id_, *route.answer_to, std::move(incoming_));
  }
}

void AgentStream::TakeHello() {
  v1::Hello& hello = *incoming_.mutable_hello();
  const std::string address = rpc::AddressOfPeer(context_->peer());
  hub_.RemoveWaiting(connection_id_);
  if (const absl::Status allowed = gate_.CheckWorker(caller_, hello.worker_id()); !allowed.ok()) {
    Close(allowed);
    return;
  }
  if (const absl::Status added = hub_.Add(connection_id_, address, self_); !added.ok()) {
    Close(added);
    return;
  }
  greeted_ = true;
  checkpoint_root_ = hello.checkpoint_root();
  metrics_.SetAgents(static_cast<int64_t>(hub_.size()));
  HEARTH_LOG_INFO("worker {} connects (incarnation {}, host {})", hello.worker_id(),
                  hello.incarnation(), hello.host());
  // The key itself goes no further.
  std::string key_sha256 = hello.name_key().empty() ? "" : Sha256Hex(hello.name_key());
  hello.clear_name_key();
  PostCommand(AgentConnected{.connection_id = connection_id_,
                             .hello = std::move(hello),
                             .name_key_sha256 = std::move(key_sha256),
                             .address = address,
                             .local = rpc::IsOwnAddress(address)});
}

void AgentStream::PostCommand(Command command) {
  {
    absl::MutexLock lock(&mu_);
    ++in_flight_;
  }
  loop_.PostFromAgent(std::move(command), [self = shared_from_this()](const Reply& reply) {
    self->CommandDone(reply);
  });
}

void AgentStream::CommandDone(const Reply& reply) {
  {
    absl::MutexLock lock(&mu_);
    --in_flight_;
    if (reply.status.ok() && read_paused_ && !closing_ && in_flight_ < kInFlightMax / 2) {
      read_paused_ = false;
      // Under the lock: while nothing is being read or written, a Close() right here would end the
      // call, and gRPC would free it before this read begins.
      StartRead(&incoming_);
    }
  }
  if (!reply.status.ok()) {
    Close(reply.status);
  }
}

void AgentStream::Send(v1::CoordinatorMessage message) {
  bool overflow = false;
  {
    absl::MutexLock lock(&mu_);
    if (closing_) {
      return;
    }
    overflow = outgoing_.size() >= kOutgoingMax;
    if (!overflow) {
      outgoing_.push_back(std::move(message));
    }
  }
  if (overflow) {
    HEARTH_LOG_WARNING("connection {}: the worker does not read; closing its stream",
                       connection_id_);
    context_->TryCancel();  // a write may hang, so the stream cannot end in order
    return;
  }
  Advance();
}

void AgentStream::Close(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (closing_) {
      return;
    }
    closing_ = true;
    close_status_ = status;
  }
  if (absl::IsInvalidArgument(status)) {
    metrics_.CountAgentViolation();
  }
  Advance();
}

void AgentStream::Advance() {
  const v1::CoordinatorMessage* write = nullptr;
  absl::Status finish;
  {
    absl::MutexLock lock(&mu_);
    if (writing_ || finished_) {
      return;
    }
    if (!outgoing_.empty()) {
      writing_ = true;
      write = &outgoing_.front();  // a deque's push_back moves no element
    } else if (closing_) {
      finished_ = true;
      finish = close_status_;
    } else {
      return;
    }
  }
  if (write != nullptr) {
    if (const absl::Status fault = fault::Check("coordinator.send"); !fault.ok()) {
      HEARTH_LOG_WARNING("connection {}: {}", connection_id_, std::string(fault.message()));
      context_->TryCancel();  // the write fails, and with it the stream
    }
    StartWrite(write);
  } else {
    Finish(rpc::ToGrpc(finish));
  }
}

void AgentStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    outgoing_.pop_front();
    if (!ok) {
      // What waits cannot be delivered any more, and Advance ends the call only without it.
      outgoing_.clear();
    }
  }
  if (!ok) {
    Close(absl::CancelledError("the worker has gone"));
  }
  Advance();
}

void AgentStream::OnCancel() {
  {
    absl::MutexLock lock(&mu_);
    // The front one is gRPC's while it is being written.
    if (!writing_) {
      outgoing_.clear();
    }
  }
  Close(absl::CancelledError("the stream was cancelled"));
}

void AgentStream::OnDone() {
  const std::shared_ptr<AgentStream> self = std::move(self_);  // dies with this scope
  hub_.RemoveWaiting(connection_id_);
  if (greeted_) {
    hub_.Remove(connection_id_);
    metrics_.SetAgents(static_cast<int64_t>(hub_.size()));
    inspector_.OnDisconnected(connection_id_);
    loop_.PostFromAgent(AgentDisconnected{connection_id_}, nullptr);
  }
}

}  // namespace hearth::coordinator
