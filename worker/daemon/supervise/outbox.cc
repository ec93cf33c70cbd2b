#include "worker/daemon/supervise/outbox.h"

#include <sys/socket.h>

#include <cerrno>

#include "common/io/message_frame.h"

namespace hearth::worker {

absl::Status Outbox::Add(const google::protobuf::MessageLite& message) {
  return AppendFrame(message, bytes_);
}

void Outbox::SendTo(int pipe) {
  size_t sent = 0;
  while (sent < bytes_.size()) {
    const ssize_t took = send(pipe, bytes_.data() + sent, bytes_.size() - sent, MSG_NOSIGNAL);
    if (took >= 0) {
      sent += static_cast<size_t>(took);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      sent = bytes_.size();
    }
  }
  // Once, at the end: moving the rest after each piece would cost quadratic time.
  bytes_.erase(0, sent);
}

}  // namespace hearth::worker
