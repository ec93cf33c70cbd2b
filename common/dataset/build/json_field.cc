#include "common/dataset/build/json_field.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/tokenizer/unicode.h"

namespace hearth::dataset {
namespace {

constexpr int kMaxDepth = 32;    // a complete parser takes more
constexpr int kMaxDigits = 40;   // of a number, signs and all; it stays far below DBL_MAX
constexpr int kMaxExponent = 2;  // digits of one

static_assert(std::endian::native == std::endian::little, "the first byte is the lowest");

// Sixteen bytes, for which the compiler uses vector instructions.
using Bytes16 = signed char __attribute__((vector_size(16)));

// The bytes of `p` that end a stretch of a string which is copied as it is: quotes, backslashes,
// control characters and what is not ASCII (negative here). Byte i is that of the i-th bit group.
struct Stops {
  uint64_t low;
  uint64_t high;
};
inline Stops StopsOf(Bytes16 bytes) {
  const Bytes16 stop = (bytes == '"') | (bytes == '\\') | (bytes < ' ');
  Stops stops;
  std::memcpy(&stops, &stop, sizeof stops);
  return stops;
}
inline Bytes16 Load(const uint8_t* p) {
  Bytes16 bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return bytes;
}
// How many of the 16 bytes stand before the first stop. There is one.
inline size_t BeforeFirst(Stops stops) {
  return stops.low != 0 ? static_cast<size_t>(std::countr_zero(stops.low)) / 8
                        : 8 + static_cast<size_t>(std::countr_zero(stops.high)) / 8;
}

bool IsDigit(uint8_t c) {
  return c >= '0' && c <= '9';
}

// The value of each hexadecimal digit; -1 for other bytes.
constexpr std::array<int8_t, 256> kHexDigits = [] {
  std::array<int8_t, 256> digits{};
  for (size_t c = 0; c < digits.size(); ++c) {
    const size_t lower = c | 0x20;
    digits[c] = static_cast<int8_t>(c >= '0' && c <= '9'           ? c - '0'
                                    : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                                   : -1);
  }
  return digits;
}();

// Four hexadecimal digits; negative: others.
inline int32_t Hex4(const uint8_t* p) {
  return kHexDigits[p[0]] * 4096 | kHexDigits[p[1]] * 256 | kHexDigits[p[2]] * 16 |
         kHexDigits[p[3]];
}

bool IsHighSurrogate(int32_t c) {
  return c >= 0xd800 && c < 0xdc00;
}
bool IsLowSurrogate(int32_t c) {
  return c >= 0xdc00 && c < 0xe000;
}

// What a backslash and this byte stand for; 0: nothing.
constexpr std::array<uint8_t, 256> kEscapes = [] {
  std::array<uint8_t, 256> escapes{};
  escapes['"'] = '"';
  escapes['\\'] = '\\';
  escapes['/'] = '/';
  escapes['b'] = '\b';
  escapes['f'] = '\f';
  escapes['n'] = '\n';
  escapes['r'] = '\r';
  escapes['t'] = '\t';
  return escapes;
}();

// Which string is wanted of an object: the one called `whole`, or what `names` leads to.
struct Wanted {
  std::string_view whole;  // without data(): none
  std::string_view names;  // "a.b" leads from a to b; without data(): none
};

// Walks through a line. Its functions return false where a complete parser must decide.
class JsonLine {
 public:
  // `out`: room for the line and a block.
  JsonLine(std::string_view line, char* out)
      : p_(reinterpret_cast<const uint8_t*>(line.data())),
        end_(p_ + line.size()),
        out_(reinterpret_cast<uint8_t*>(out)) {}

  std::optional<std::string_view> Find(std::string_view field) {
    const bool has_dots = field.find('.') != std::string_view::npos;
    const Wanted wanted = {field, has_dots ? field : std::string_view()};
    Space();
    if (!Take('{') || !Object(&wanted, 1)) {
      return std::nullopt;
    }
    Space();
    return p_ == end_ ? found_ : std::nullopt;
  }

 private:
  void Space() {
    while (p_ != end_ && (*p_ == ' ' || *p_ == '\t' || *p_ == '\r' || *p_ == '\n')) {
      ++p_;
    }
  }

  bool Take(char c) {
    if (p_ == end_ || *p_ != static_cast<uint8_t>(c)) {
      return false;
    }
    ++p_;
    return true;
  }

  // Behind the bracket that opens it. `wanted`: null inside what is only checked.
  bool Object(const Wanted* wanted, int depth) {
    bool entered = false;
    Space();
    if (Take('}')) {
      return true;
    }
    do {
      Space();
      if (!Take('"')) {
        return false;
      }
      const uint8_t* const key_begin = p_;
      bool escaped = false;
      if (!String(&escaped)) {
        return false;
      }
      const std::string_view key = View(key_begin, p_ - 1);
      Space();
      if (!Take(':')) {
        return false;
      }
      Space();
      const bool good =
          wanted == nullptr ? Value(depth) : !escaped && Member(key, *wanted, depth, &entered);
      if (!good) {
        return false;
      }
      Space();
    } while (Take(','));
    return Take('}');
  }

  static std::string_view View(const uint8_t* begin, const uint8_t* end) {
    return {reinterpret_cast<const char*>(begin), static_cast<size_t>(end - begin)};
  }

  // The value of `key`. *entered: the object led to by `wanted.names` was met before.
  bool Member(std::string_view key, const Wanted& wanted, int depth, bool* entered) {
    const size_t dot = wanted.names.find('.');
    const bool is_first = wanted.names.data() != nullptr && key == wanted.names.substr(0, dot);
    const bool is_last = is_first && dot == std::string_view::npos;
    if (is_last || (wanted.whole.data() != nullptr && key == wanted.whole)) {
      return !found_.has_value() && Take('"') && Text();
    }
    if (!is_first) {
      return Value(depth);
    }
    const Wanted rest = {std::string_view(), wanted.names.substr(dot + 1)};
    return !std::exchange(*entered, true) && depth < kMaxDepth && Take('{') &&
           Object(&rest, depth + 1);
  }

  bool Value(int depth) {
    if (p_ == end_) {
      return false;
    }
    bool unused = false;
    switch (*p_) {
      case '"':
        ++p_;
        return String(&unused);
      case '{':
        ++p_;
        return depth < kMaxDepth && Object(nullptr, depth + 1);
      case '[':
        ++p_;
        return depth < kMaxDepth && Array(depth + 1);
      case 't':
        return Word("true");
      case 'f':
        return Word("false");
      case 'n':
        return Word("null");
      default:
        return Number();
    }
  }

  bool Array(int depth) {
    Space();
    if (Take(']')) {
      return true;
    }
    do {
      Space();
      if (!Value(depth)) {
        return false;
      }
      Space();
    } while (Take(','));
    return Take(']');
  }

  bool Word(std::string_view word) {
    if (static_cast<size_t>(end_ - p_) < word.size() ||
        std::memcmp(p_, word.data(), word.size()) != 0) {
      return false;
    }
    p_ += word.size();
    return true;
  }

  // Passes over digits; how many.
  int64_t Digits() {
    const uint8_t* const from = p_;
    while (p_ != end_ && IsDigit(*p_)) {
      ++p_;
    }
    return p_ - from;
  }

  bool Number() {
    const uint8_t* const from = p_;
    Take('-');
    if (!Take('0') && Digits() == 0) {
      return false;
    }
    if (Take('.') && Digits() == 0) {
      return false;
    }
    if (Take('e') || Take('E')) {
      if (!Take('-')) {
        Take('+');
      }
      if (const int64_t digits = Digits(); digits == 0 || digits > kMaxExponent) {
        return false;
      }
    }
    return p_ - from <= kMaxDigits;
  }

  // Behind the quote that opens it. Sets *escaped if it has a backslash.
  bool String(bool* escaped) {
    while (SkipPlain()) {
      if (*p_ == '"') {
        ++p_;
        return true;
      }
      uint8_t unused[4];
      *escaped = *escaped || *p_ == '\\';
      if (!(*p_ == '\\' ? Escape(unused) != nullptr : Multibyte())) {
        return false;
      }
    }
    return false;
  }

  // The string that is wanted, behind the quote that opens it.
  bool Text() {
    const uint8_t* const from = p_;
    while (SkipPlain() && *p_ != '"' && *p_ != '\\') {
      if (!Multibyte()) {
        return false;
      }
    }
    if (p_ == end_ || *p_ == '"') {
      found_ = View(from, p_);
      return Take('"');
    }
    // From the first backslash on it is copied.
    const size_t before = static_cast<size_t>(p_ - from);
    std::memcpy(out_, from, before);
    uint8_t* out = out_ + before;
    while (CopyPlain(&out)) {
      if (*p_ == '"') {
        found_ = View(out_, out);
        ++p_;
        return true;
      }
      if (*p_ == '\\') {
        out = Escape(out);
        if (out == nullptr) {
          return false;
        }
        continue;
      }
      const uint8_t* const characters = p_;
      if (!Multibyte()) {
        return false;
      }
      std::memcpy(out, characters, static_cast<size_t>(p_ - characters));
      out += p_ - characters;
    }
    return false;
  }

  // As SkipPlain, and copies what it skips.
  bool CopyPlain(uint8_t** out) {
    while (end_ - p_ >= 16) {
      const Bytes16 bytes = Load(p_);
      std::memcpy(*out, &bytes, sizeof bytes);
      const Stops stops = StopsOf(bytes);
      const bool stopped = (stops.low | stops.high) != 0;
      const size_t plain = stopped ? BeforeFirst(stops) : sizeof bytes;
      p_ += plain;
      *out += plain;
      if (stopped) {
        return true;
      }
    }
    while (p_ != end_ && IsPlain(*p_)) {
      *(*out)++ = *p_++;
    }
    return p_ != end_;
  }

  static bool IsPlain(uint8_t c) { return c != '"' && c != '\\' && c >= ' ' && c < 0x80; }

  // To the next quote, backslash, control character or byte that is not ASCII. False: there is
  // none.
  bool SkipPlain() {
    while (end_ - p_ >= 16) {
      const Stops stops = StopsOf(Load(p_));
      if ((stops.low | stops.high) != 0) {
        p_ += BeforeFirst(stops);
        return true;
      }
      p_ += 16;
    }
    while (p_ != end_ && IsPlain(*p_)) {
      ++p_;
    }
    return p_ != end_;
  }

  // Writes what stands for a backslash and what follows it, up to 4 bytes; returns their end, null
  // where it stands for nothing.
  uint8_t* Escape(uint8_t* out) {
    if (end_ - p_ < 2) {
      return nullptr;
    }
    if (p_[1] != 'u') {
      *out = kEscapes[p_[1]];
      p_ += 2;
      return *out == 0 ? nullptr : out + 1;
    }
    if (end_ - p_ < 6) {
      return nullptr;
    }
    int32_t c = Hex4(p_ + 2);
    p_ += 6;
    if (c <= 0 || IsLowSurrogate(c)) {
      return nullptr;
    }
    if (IsHighSurrogate(c)) {
      if (end_ - p_ < 6 || p_[0] != '\\' || p_[1] != 'u' || !IsLowSurrogate(Hex4(p_ + 2))) {
        return nullptr;
      }
      c = 0x10000 + ((c - 0xd800) << 10) + (Hex4(p_ + 2) - 0xdc00);
      p_ += 6;
    }
    return tokenizer::PutUtf8(static_cast<uint32_t>(c), out);
  }

  // Passes over characters that are not ASCII. False: control characters, or not UTF-8.
  bool Multibyte() {
    const uint8_t* const from = p_;
    p_ = tokenizer::SkipNonAscii(p_, end_);
    return p_ != from;
  }

  const uint8_t* p_;
  const uint8_t* const end_;
  uint8_t* const out_;
  std::optional<std::string_view> found_;
};

}  // namespace

std::optional<std::string_view> FindJsonString(std::string_view line,
                                               std::string_view field,
                                               ByteBuffer* scratch) {
  scratch->Clear();
  // A block of 16 bytes may be written behind the end of the text.
  return JsonLine(line, scratch->Extend(line.size() + sizeof(Bytes16))).Find(field);
}

}  // namespace hearth::dataset
