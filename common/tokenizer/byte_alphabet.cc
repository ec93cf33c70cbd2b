#include "common/tokenizer/byte_alphabet.h"

#include <array>

#include "common/tokenizer/unicode.h"

namespace hearth::tokenizer {
namespace {

constexpr uint32_t kFirstReplacement = 0x100;
constexpr uint32_t kCharacters = 0x100 + 68;  // 68 bytes have no printable character of their own
constexpr int16_t kNoByte = -1;

struct Alphabet {
  std::array<uint32_t, 256> character = {};
  std::array<int16_t, kCharacters> byte = {};
};

constexpr bool IsPrintable(uint32_t b) {
  return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) {
    byte = kNoByte;
  }
  uint32_t next = kFirstReplacement;
  for (uint32_t b = 0; b < 256; ++b) {
    alphabet.character[b] = IsPrintable(b) ? b : next++;
    alphabet.byte[alphabet.character[b]] = static_cast<int16_t>(b);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

uint32_t ByteCharacter(uint8_t byte) {
  return kAlphabet.character[byte];
}

std::optional<std::string> BytesOfName(std::string_view name) {
  std::string bytes;
  const auto* p = reinterpret_cast<const uint8_t*>(name.data());
  for (size_t i = 0; i < name.size();) {
    size_t size = 0;
    const uint32_t c = DecodeValid(p + i, &size);
    if (c >= kCharacters || kAlphabet.byte[c] == kNoByte) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kAlphabet.byte[c]));
    i += size;
  }
  return bytes;
}

std::string NameOfBytes(std::string_view bytes) {
  std::string name;
  for (const char c : bytes) {
    AppendUtf8(ByteCharacter(static_cast<uint8_t>(c)), &name);
  }
  return name;
}

}  // namespace hearth::tokenizer
