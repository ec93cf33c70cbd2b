#include "coordinator/store/record_frame.h"

#include <array>
#include <cstddef>

namespace hearth::coordinator {
namespace {

// Eight tables, so that eight bytes take eight look-ups that do not wait for each other.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables MakeCrcTables() {
  CrcTables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      // The polynomial of CRC-32C (Castagnoli), bits reversed.
      value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    }
    tables[0][i] = value;
  }
  for (size_t t = 1; t < 8; ++t) {
    for (size_t i = 0; i < 256; ++i) {
      const uint32_t before = tables[t - 1][i];
      tables[t][i] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr CrcTables kCrc = MakeCrcTables();

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

void Crc32c::Extend(std::string_view bytes) {
  const char* data = bytes.data();
  size_t left = bytes.size();
  uint32_t crc = state_;
  // Eight bytes at a time, with a table for each of them (slicing-by-8).
  for (; left >= 8; left -= 8, data += 8) {
    const uint32_t low = crc ^ GetInteger<uint32_t>(data);
    const uint32_t high = GetInteger<uint32_t>(data + 4);
    crc = kCrc[7][low & 0xff] ^ kCrc[6][(low >> 8) & 0xff] ^ kCrc[5][(low >> 16) & 0xff] ^
          kCrc[4][low >> 24] ^ kCrc[3][high & 0xff] ^ kCrc[2][(high >> 8) & 0xff] ^
          kCrc[1][(high >> 16) & 0xff] ^ kCrc[0][high >> 24];
  }
  for (; left > 0; --left, ++data) {
    crc = kCrc[0][(crc ^ static_cast<uint8_t>(*data)) & 0xff] ^ (crc >> 8);
  }
  state_ = crc;
}

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
