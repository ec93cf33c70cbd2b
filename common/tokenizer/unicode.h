// What pre-tokenisers and normalisers must know about code points and UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::tokenizer {

// \p{L}, \p{N}, \s (White_Space) and the rest; CR and LF are white space too.
enum class CharClass : uint8_t { kLetter, kNumber, kSpace, kNewline, kOther };

// Classes of all code points, as the PCRE2 of this machine has them, so that the compiled scanners
// and PCRE2 always agree. Built once on first use (about 10 ms); lives for ever. Thread-safe.
class CharClasses {
 public:
  static const CharClasses& Get();
  CharClass Of(uint32_t code_point) const {
    return code_point < kEnd ? classes_[code_point] : CharClass::kOther;
  }

 private:
  CharClasses();
  // No letter or number lies above (plane 3 ends in CJK ideographs).
  static constexpr uint32_t kEnd = 0x40000;
  CharClass classes_[kEnd];
};

// White_Space as the inside of a PCRE2 character class: PCRE2's own \s has U+180E as well.
inline constexpr char kSpaceSet[] =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// The simple upper or lower case of a code point (UnicodeData.txt) in every locale; the code point
// itself if it has none.
uint32_t ToUpper(uint32_t code_point);
uint32_t ToLower(uint32_t code_point);

// Code point at `p`, which must begin a valid UTF-8 sequence; `*size` is its length in bytes.
inline uint32_t DecodeValid(const uint8_t* p, size_t* size) {
  if (p[0] < 0x80) {
    *size = 1;
    return p[0];
  }
  if (p[0] < 0xe0) {
    *size = 2;
    return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
  }
  if (p[0] < 0xf0) {
    *size = 3;
    return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
  }
  *size = 4;
  return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

// The end of the characters at `p` that are not ASCII: where ASCII, bytes that are not valid UTF-8,
// or `end` follow. `p`: none is there.
const uint8_t* SkipNonAscii(const uint8_t* p, const uint8_t* end);

// Offset of the first byte that does not belong to valid UTF-8 (surrogates, overlong forms and
// values above U+10FFFF are invalid); text.size() if all is valid.
size_t FirstInvalidUtf8(std::string_view text);

// Writes a code point as UTF-8, up to 4 bytes; returns their end. `code_point` <= 0x10ffff.
uint8_t* PutUtf8(uint32_t code_point, uint8_t* out);

// Appends a code point as UTF-8. `code_point` <= 0x10ffff.
void AppendUtf8(uint32_t code_point, std::string* out);

// Puts valid UTF-8 into normalisation form NFC. Returns false, and leaves `out` alone, if `text`
// is in that form already. Thread-safe.
bool NormalizeNfc(std::string_view text, std::string* out);

}  // namespace hearth::tokenizer
