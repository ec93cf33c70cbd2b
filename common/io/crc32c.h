// CRC-32C, the checksum of short records: it tells accidents such as torn writes and bit flips.
#pragma once

#include <cstdint>
#include <string_view>

namespace hearth {

// CRC-32C (Castagnoli) of bytes that come in pieces.
class Crc32c {
 public:
  void Extend(std::string_view bytes);
  uint32_t value() const { return ~state_; }

 private:
  uint32_t state_ = 0xffffffffu;
};

}  // namespace hearth
