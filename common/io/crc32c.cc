#include "common/io/crc32c.h"

#include <array>
#include <cstddef>

namespace hearth {
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

// Four bytes, the lowest first.
uint32_t Load32(const char* data) {
  uint32_t value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= uint32_t{static_cast<uint8_t>(data[i])} << (8 * i);
  }
  return value;
}

}  // namespace

void Crc32c::Extend(std::string_view bytes) {
  const char* data = bytes.data();
  size_t left = bytes.size();
  uint32_t crc = state_;
  // Eight bytes at a time, with a table for each of them (slicing-by-8).
  for (; left >= 8; left -= 8, data += 8) {
    const uint32_t low = crc ^ Load32(data);
    const uint32_t high = Load32(data + 4);
    crc = kCrc[7][low & 0xff] ^ kCrc[6][(low >> 8) & 0xff] ^ kCrc[5][(low >> 16) & 0xff] ^
          kCrc[4][low >> 24] ^ kCrc[3][high & 0xff] ^ kCrc[2][(high >> 8) & 0xff] ^
          kCrc[1][(high >> 16) & 0xff] ^ kCrc[0][high >> 24];
  }
  for (; left > 0; --left, ++data) {
    crc = kCrc[0][(crc ^ static_cast<uint8_t>(*data)) & 0xff] ^ (crc >> 8);
  }
  state_ = crc;
}

}  // namespace hearth
