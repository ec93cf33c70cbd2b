#include "coordinator/store/record_frame.h"

#include <cstddef>

namespace hearth::coordinator {
namespace {

template <typename T>
void PutInteger(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>((static_cast<uint64_t>(value) >> (8 * i)) & 0xff));
  }
}

template <typename T>
T GetInteger(const char* data) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<uint8_t>(data[i])} << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

bool Frame::Intact() const {
  Crc32c sum;
  sum.Extend(checked);
  return sum.value() == crc;
}

void PutFrame(std::string& out, int64_t cursor, uint8_t kind, std::string_view payload) {
  std::string head;
  PutInteger<int64_t>(head, cursor);
  head.push_back(static_cast<char>(kind));
  Crc32c sum;
  sum.Extend(head);
  sum.Extend(payload);
  PutU32(out, static_cast<uint32_t>(payload.size()));
  PutU32(out, sum.value());
  out.append(head);
  out.append(payload);
}

bool GetFrame(absl::Span<const uint8_t> bytes, int64_t offset, int64_t size, Frame& frame) {
  if (offset + kFrameHeaderBytes > size) {
    return false;
  }
  const char* data = reinterpret_cast<const char*>(bytes.data()) + offset;
  const int64_t length = GetU32(data);
  // The length lies outside of the checksum: a damaged one must not lead past the end.
  if (offset + kFrameHeaderBytes + length > size) {
    return false;
  }
  frame.crc = GetU32(data + 4);
  frame.cursor = GetInteger<int64_t>(data + 8);
  frame.kind = static_cast<uint8_t>(data[16]);
  frame.checked = std::string_view(data + 8, static_cast<size_t>(9 + length));
  frame.payload = std::string_view(data + kFrameHeaderBytes, static_cast<size_t>(length));
  return true;
}

void PutU32(std::string& out, uint32_t value) {
  PutInteger<uint32_t>(out, value);
}

uint32_t GetU32(const char* data) {
  return GetInteger<uint32_t>(data);
}

}  // namespace hearth::coordinator
