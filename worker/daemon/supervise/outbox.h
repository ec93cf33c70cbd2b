// Messages that wait until a child process takes them from its pipe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"

namespace hearth::worker {

// Whole frames, in order. It has no bound of its own: the owner looks at waiting(). Not
// thread-safe.
class Outbox {
 public:
  // kInvalidArgument: longer than a frame; nothing was added.
  absl::Status Add(const google::protobuf::MessageLite& message);

  size_t waiting() const { return bytes_.size(); }  // bytes

  // Gives the non-blocking socket `pipe` what it takes now. Forgets everything if the other end is
  // gone: that is said by the socket itself, to whoever reads from it.
  void SendTo(int pipe);

 private:
  std::string bytes_;
};

}  // namespace hearth::worker
