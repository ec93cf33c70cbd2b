#include <algorithm>

#include "common/io/message_frame.h"
#include "hearth/v1/trainer.pb.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {
namespace {

// All frames of a stream that comes in pieces of `piece` bytes.
template <typename Message>
bool ReadAll(std::string_view bytes, size_t piece) {
  FrameReader reader;
  Message message;
  bool taken = false;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.Append(bytes.substr(at, piece));
    while (true) {
      const absl::StatusOr<bool> got = reader.Next(message);
      if (!got.ok()) {
        return taken;
      }
      if (!*got) {
        break;
      }
      taken = true;
    }
  }
  return taken;
}

}  // namespace

// What a trainer writes to its worker, and what it reads: the first byte says in which pieces.
bool TrainerPipe(std::string_view bytes) {
  if (bytes.empty()) {
    return false;
  }
  const size_t piece = 1 + static_cast<unsigned char>(bytes.front());
  const bool from = ReadAll<v1::FromTrainer>(bytes.substr(1), piece);
  const bool to = ReadAll<v1::ToTrainer>(bytes.substr(1), piece);
  return from || to;
}

}  // namespace hearth::fuzz
