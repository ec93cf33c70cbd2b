#include "common/io/message_frame.h"

#include "absl/strings/str_cat.h"

namespace hearth {
namespace {

constexpr size_t kHeaderBytes = 4;

uint32_t ReadLength(std::string_view bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    length |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return length;
}

}  // namespace

absl::Status AppendFrame(const google::protobuf::MessageLite& message, std::string& out) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of ", size, " bytes; a frame holds at most ", kMaxFrameBytes));
  }
  out.reserve(out.size() + kHeaderBytes + size);
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    out.push_back(static_cast<char>((size >> (8 * i)) & 0xff));
  }
  message.AppendToString(&out);
  return absl::OkStatus();
}

absl::StatusOr<bool> FrameReader::Next(google::protobuf::MessageLite& message) {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() < kHeaderBytes) {
    return false;
  }
  const uint32_t length = ReadLength(rest);
  if (length > kMaxFrameBytes) {
    return absl::DataLossError(
        absl::StrCat("frame of ", length, " bytes on the pipe between worker and trainer"));
  }
  if (rest.size() < kHeaderBytes + length) {
    return false;
  }
  if (!message.ParseFromArray(rest.data() + kHeaderBytes, static_cast<int>(length))) {
    return absl::DataLossError("a frame on the pipe between worker and trainer does not parse");
  }
  begin_ += kHeaderBytes + length;
  // In large pieces: moving the rest after each message would cost quadratic time.
  if (begin_ == buffer_.size() || begin_ > (1 << 20)) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return true;
}

}  // namespace hearth
