// Messages in a stream of bytes: a little-endian uint32 length and that many bytes of protobuf.
// Both ends of the pipe between worker and trainer (trainer.proto) use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"

namespace hearth {

inline constexpr size_t kMaxFrameBytes = 64 << 20;

// Adds `message` to `out` as a frame. kInvalidArgument: longer than kMaxFrameBytes; `out` is as it
// was, and the caller says what became of the message.
absl::Status AppendFrame(const google::protobuf::MessageLite& message, std::string& out);

// Cuts a byte stream into frames. Not thread-safe.
class FrameReader {
 public:
  void Append(std::string_view data) { buffer_.append(data.data(), data.size()); }

  // Fills `message` from the next whole frame and consumes it; false: more bytes are needed.
  // kDataLoss: the frame is too long or does not parse; the stream is then of no further use.
  absl::StatusOr<bool> Next(google::protobuf::MessageLite& message);

 private:
  std::string buffer_;
  size_t begin_ = 0;  // consumed bytes at the start of buffer_
};

}  // namespace hearth
