#include "common/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/base/status_macros.h"
#include "common/tokenizer/regex.h"

namespace hearth::tokenizer {
namespace {

bool IsSurrogate(uint32_t code_point) {
  return code_point >= 0xd800 && code_point < 0xe000;
}

// The first byte at or after `i` that is not ASCII; `n` if all are.
size_t SkipAscii(const uint8_t* p, size_t i, size_t n) {
  uint64_t word = 0;
  while (i + 8 <= n) {
    std::memcpy(&word, p + i, 8);
    if ((word & 0x8080808080808080u) != 0) {
      break;
    }
    i += 8;
  }
  while (i < n && p[i] < 0x80) {
    ++i;
  }
  return i;
}

// What NFC may do to a code point in some context.
class NfcTable {
 public:
  static const NfcTable& Get() {
    static const NfcTable& table = *new NfcTable;
    return table;
  }
  // It may be replaced, or join what stands before it.
  bool Changes(uint32_t c) const { return c < kEnd && changes_[c]; }
  // It has a combining class, so it may change places with its neighbours.
  bool Moves(uint32_t c) const { return c < kEnd && moves_[c]; }

 private:
  static constexpr uint32_t kEnd = 0x40000;

  NfcTable() {
    for (uint32_t c = 0; c < kEnd; ++c) {
      if (IsSurrogate(c)) {
        continue;
      }
      const auto code_point = static_cast<utf8proc_int32_t>(c);
      moves_[c] = utf8proc_get_property(code_point)->combining_class != 0;
      utf8proc_int32_t parts[8];
      const utf8proc_ssize_t n =
          utf8proc_decompose_char(code_point, parts, 8, UTF8PROC_DECOMPOSE, nullptr);
      if (n <= 1 && (n < 1 || parts[0] == code_point)) {
        continue;
      }
      // The parts behind the first one may join a character that stands before them.
      for (utf8proc_ssize_t i = 1; i < std::min<utf8proc_ssize_t>(n, 8); ++i) {
        changes_[static_cast<uint32_t>(parts[i])] = true;
      }
      // A composition that NFC keeps as it is stays out.
      const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
          parts, n, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
      if (composed != 1 || parts[0] != code_point) {
        changes_[c] = true;
      }
    }
  }

  std::bitset<kEnd> changes_;
  std::bitset<kEnd> moves_;
};

void AppendNfc(std::string_view text, std::string* out) {
  utf8proc_uint8_t* normal = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &normal,
                   static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  HEARTH_CHECK(size >= 0, "text for NFC is valid UTF-8");
  out->append(reinterpret_cast<const char*>(normal), static_cast<size_t>(size));
  std::free(normal);  // utf8proc allocates with malloc
}

}  // namespace

CharClasses::CharClasses() {
  std::string all;
  std::unique_ptr<uint32_t[]> at(new uint32_t[size_t{kEnd} * 4]);  // byte -> code point
  for (uint32_t c = 0; c < kEnd; ++c) {
    classes_[c] = CharClass::kOther;
    if (!IsSurrogate(c)) {
      at[all.size()] = c;
      AppendUtf8(c, &all);
    }
  }
  const struct {
    const char* pattern;
    CharClass value;
  } rows[] = {
      {R"(\p{L}+)", CharClass::kLetter},
      {R"(\p{N}+)", CharClass::kNumber},
      {R"(\s+)", CharClass::kSpace},
      {R"([\r\n]+)", CharClass::kNewline},
  };
  // Asked of PCRE2 itself, so that scanners and expressions agree on every character.
  for (const auto& row : rows) {
    const auto regex = Regex::Compile(row.pattern);
    HEARTH_CHECK(regex.ok(), "PCRE2 knows the properties of Unicode");
    RegexScratch scratch;
    size_t begin = 0;
    size_t end = 0;
    while ((*regex)->Find(all, end, &scratch, &begin, &end).value_or(false)) {
      for (size_t i = begin; i < end;) {
        size_t size = 0;
        DecodeValid(reinterpret_cast<const uint8_t*>(all.data()) + i, &size);
        classes_[at[i]] = row.value;
        i += size;
      }
    }
  }
}

const CharClasses& CharClasses::Get() {
  static const CharClasses& classes = *new CharClasses;
  return classes;
}

uint32_t ToUpper(uint32_t code_point) {
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point)));
}

uint32_t ToLower(uint32_t code_point) {
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

const uint8_t* SkipNonAscii(const uint8_t* p, const uint8_t* end) {
  const auto follows = [&p, end](int i, uint8_t least, uint8_t most) {
    return end - p > i && p[i] >= least && p[i] <= most;
  };
  // Unicode, table 3-7.
  while (p != end && *p >= 0x80) {
    const uint8_t c = *p;
    if (c >= 0xc2 && c < 0xe0 && follows(1, 0x80, 0xbf)) {
      p += 2;
    } else if (c >= 0xe0 && c < 0xf0 &&
               follows(1, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf) &&
               follows(2, 0x80, 0xbf)) {
      p += 3;
    } else if (c >= 0xf0 && c < 0xf5 &&
               follows(1, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf) &&
               follows(2, 0x80, 0xbf) && follows(3, 0x80, 0xbf)) {
      p += 4;
    } else {
      break;
    }
  }
  return p;
}

size_t FirstInvalidUtf8(std::string_view text) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(text.data());
  const size_t n = text.size();
  for (size_t i = SkipAscii(begin, 0, n); i < n; i = SkipAscii(begin, i, n)) {
    const auto end = static_cast<size_t>(SkipNonAscii(begin + i, begin + n) - begin);
    if (end == i) {
      return i;
    }
    i = end;
  }
  return n;
}

uint8_t* PutUtf8(uint32_t c, uint8_t* out) {
  if (c < 0x80) {
    *out++ = static_cast<uint8_t>(c);
    return out;
  }
  if (c < 0x800) {
    *out++ = static_cast<uint8_t>(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      *out++ = static_cast<uint8_t>(0xe0 | c >> 12);
    } else {
      *out++ = static_cast<uint8_t>(0xf0 | c >> 18);
      *out++ = static_cast<uint8_t>(0x80 | (c >> 12 & 0x3f));
    }
    *out++ = static_cast<uint8_t>(0x80 | (c >> 6 & 0x3f));
  }
  *out++ = static_cast<uint8_t>(0x80 | (c & 0x3f));
  return out;
}

void AppendUtf8(uint32_t c, std::string* out) {
  uint8_t bytes[4];
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(PutUtf8(c, bytes) - bytes));
}

bool NormalizeNfc(std::string_view text, std::string* out) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  const size_t n = text.size();
  const NfcTable& table = NfcTable::Get();
  std::string result;
  size_t copied = 0;   // text[0, copied) is in `result`
  size_t starter = 0;  // the last code point that starts a segment
  for (size_t i = 0; i < n;) {
    if (p[i] < 0x80) {
      i = SkipAscii(p, i, n);
      starter = i - 1;
      continue;
    }
    if (p[i] < 0xcc) {  // below U+0300
      starter = i;
      i += 2;
      continue;
    }
    size_t size = 0;
    uint32_t c = DecodeValid(p + i, &size);
    if (!table.Changes(c) && !table.Moves(c)) {
      starter = i;
      i += size;
      continue;
    }
    // The starter and all that may join it or move behind it are one segment: NFC of the whole is
    // the NFC of the segments one after the other.
    size_t count = 0;
    bool may_change = false;
    size_t end = i;
    while (end < n) {
      c = DecodeValid(p + end, &size);
      if (!table.Changes(c) && !table.Moves(c)) {
        break;
      }
      may_change = may_change || table.Changes(c);
      end += size;
      ++count;
    }
    if (may_change || count > 1) {
      // A segment at the very beginning has no starter before it.
      result.append(text, copied, starter - copied);
      AppendNfc(text.substr(starter, end - starter), &result);
      copied = end;
      starter = end;
    }
    i = end;
  }
  if (copied == 0) {
    return false;
  }
  result.append(text, copied, n - copied);
  if (result == text) {
    return false;
  }
  *out = std::move(result);
  return true;
}

}  // namespace hearth::tokenizer
