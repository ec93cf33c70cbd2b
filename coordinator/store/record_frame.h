// One record in the form it has in a segment file or in the store's journal, and its checksum.
//
//   frame = u32 payload length | u32 crc32c | i64 cursor | u8 kind | payload      (little endian)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "common/io/crc32c.h"

namespace hearth::coordinator {

inline constexpr int64_t kFrameHeaderBytes = 17;

struct Frame {
  int64_t cursor = 0;
  uint8_t kind = 0;
  uint32_t crc = 0;
  std::string_view checked;  // what the checksum covers: cursor, kind, payload
  std::string_view payload;  // of the bytes given to GetFrame
  int64_t size() const { return kFrameHeaderBytes + static_cast<int64_t>(payload.size()); }
  bool Intact() const;
};

void PutFrame(std::string& out, int64_t cursor, uint8_t kind, std::string_view payload);

// False when the bytes from `offset` (at most `size`) to `size` hold no whole frame.
bool GetFrame(absl::Span<const uint8_t> bytes, int64_t offset, int64_t size, Frame& frame);

// Little-endian integers, as in frames.
void PutU32(std::string& out, uint32_t value);
uint32_t GetU32(const char* data);

}  // namespace hearth::coordinator
