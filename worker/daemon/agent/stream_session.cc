#include "worker/daemon/agent/stream_session.h"

#include <optional>
#include <utility>

#include "common/fault/fault.h"
#include "common/rpc/grpc_status.h"

namespace hearth::worker {

StreamSession::StreamSession(std::shared_ptr<grpc::Channel> channel,
                             const rpc::Credentials& credentials,
                             TaskTable& table,
                             std::function<void()> on_done)
    : stub_(v1::AgentService::NewStub(std::move(channel))),
      table_(table),
      on_done_(std::move(on_done)) {
  rpc::Authorize(context_, credentials);
}

void StreamSession::Start() {
  HEARTH_FAULT_POINT("agent.before_hello");
  v1::AgentMessage hello = table_.BeginSession();
  stub_->async()->Connect(&context_, this);
  // Writes start outside the reactor's callbacks too; the hold keeps it alive for them until
  // Close().
  AddHold();
  {
    absl::MutexLock lock(&mu_);
    outgoing_ = std::move(hello);
    StartWrite(&outgoing_);
  }
  StartRead(&incoming_);
  StartCall();
}

void StreamSession::Kick() {
  {
    absl::MutexLock lock(&mu_);
    kicked_ = true;
  }
  Pump();
}

void StreamSession::Pump() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (closed_ || half_closed_ || writing_ || pumping_ || !kicked_) {
        return;
      }
      kicked_ = false;
      // Another thread that comes here now leaves: two of them could exchange the order of two
      // messages.
      pumping_ = true;
    }
    std::optional<v1::AgentMessage> message = table_.NextMessage();
    const absl::Status fault = message.has_value() ? fault::Check("agent.send") : absl::OkStatus();
    if (!fault.ok()) {
      Cancel(fault);
    }
    absl::MutexLock lock(&mu_);
    pumping_ = false;
    if (!message.has_value()) {
      continue;  // unless kicked meanwhile, this ends above
    }
    if (closed_ || half_closed_) {
      return;
    }
    outgoing_ = *std::move(message);
    writing_ = true;
    StartWrite(&outgoing_);  // only queues the operation
    return;
  }
}

void StreamSession::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    // More may have come while this was on its way.
    kicked_ = ok;
    if (finishing_ && !half_closed_ && !closed_) {
      half_closed_ = true;
      StartWritesDone();
    }
  }
  Pump();
}

void StreamSession::OnReadDone(bool ok) {
  if (!ok) {
    Close();
    return;
  }
  absl::Status status = fault::Check("agent.receive");
  if (status.ok()) {
    status = table_.OnMessage(incoming_);
  }
  if (!status.ok()) {
    Cancel(status);
  }
  StartRead(&incoming_);
}

void StreamSession::Close() {
  {
    absl::MutexLock lock(&mu_);
    if (closed_) {
      return;
    }
    closed_ = true;
  }
  RemoveHold();
}

void StreamSession::Finish() {
  absl::MutexLock lock(&mu_);
  finishing_ = true;
  if (!writing_ && !half_closed_ && !closed_) {
    half_closed_ = true;
    StartWritesDone();
  }
}

void StreamSession::Cancel(const absl::Status& why) {
  {
    absl::MutexLock lock(&mu_);
    local_status_.Update(why);
  }
  context_.TryCancel();
}

void StreamSession::OnDone(const grpc::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    status_ = local_status_.ok() ? rpc::FromGrpc(status) : local_status_;
  }
  const std::function<void()> on_done = std::move(on_done_);
  on_done();  // from here on there may be no *this
}

absl::Status StreamSession::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

}  // namespace hearth::worker
