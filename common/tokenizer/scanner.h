// Compiled scanners for the regular expressions that GPT-2, Llama-3 and Qwen files have. Each cuts
// text into the same pieces as its expression (scanner_test.cc compares them with PCRE2).
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/types/span.h"
#include "common/tokenizer/unicode.h"

namespace hearth::tokenizer {

enum class ScannerKind { kGpt2, kLlama3, kQwen2 };

struct ScannerRow {
  ScannerKind kind;
  std::string_view name;
  std::string_view pattern;
};

absl::Span<const ScannerRow> Scanners();

// Cuts one text piece by piece. `text` is valid UTF-8 and outlives the object. Not thread-safe.
template <ScannerKind kKind>
class Scanner {
 public:
  explicit Scanner(std::string_view text)
      : begin_(reinterpret_cast<const uint8_t*>(text.data())),
        p_(begin_),
        end_(begin_ + text.size()),
        classes_(CharClasses::Get()) {}

  // The next piece; empty at the end of the text.
  std::string_view Next() {
    const uint8_t* from = p_;
    if (from == end_) {
      return {};
    }
    p_ = Piece(from);
    return {reinterpret_cast<const char*>(from), static_cast<size_t>(p_ - from)};
  }

 private:
  static constexpr bool kIsGpt2 = kKind == ScannerKind::kGpt2;
  static constexpr int kMaxDigits = kIsGpt2 ? 0 : kKind == ScannerKind::kLlama3 ? 3 : 1;  // 0: any

  // Class of the code point at `p` < end_, and where the next begins.
  CharClass At(const uint8_t* p, const uint8_t** next) const {
    size_t size = 0;
    const CharClass c = classes_.Of(DecodeValid(p, &size));
    *next = p + size;
    return c;
  }

  static bool IsSpace(CharClass c) { return c == CharClass::kSpace || c == CharClass::kNewline; }

  const uint8_t* Run(const uint8_t* p, CharClass want) const {
    const uint8_t* next = nullptr;
    while (p != end_ && At(p, &next) == want) {
      p = next;
    }
    return p;
  }

  const uint8_t* Numbers(const uint8_t* p) const {
    if (kMaxDigits == 0) {
      return Run(p, CharClass::kNumber);
    }
    const uint8_t* next = nullptr;
    for (int i = 0; i < kMaxDigits && p != end_ && At(p, &next) == CharClass::kNumber; ++i) {
      p = next;
    }
    return p;
  }

  // Signs, and for Llama-3 and Qwen the line ends behind them.
  const uint8_t* Signs(const uint8_t* p) const {
    p = Run(p, CharClass::kOther);
    return kIsGpt2 ? p : Run(p, CharClass::kNewline);
  }

  const uint8_t* Piece(const uint8_t* p) const {
    const uint8_t* next = nullptr;
    const CharClass c = At(p, &next);
    switch (c) {
      case CharClass::kLetter:
        return Run(next, CharClass::kLetter);
      case CharClass::kNumber:
        return Numbers(p);
      case CharClass::kOther:
        if (*p == '\'') {
          if (const uint8_t* end = Contraction(next); end != nullptr) {
            return end;
          }
        }
        return kIsGpt2 ? Signs(next) : Joined(next);
      case CharClass::kSpace:
      case CharClass::kNewline:
        return Space(p, next, c);
    }
    return end_;
  }

  // [^\r\n\p{L}\p{N}]?\p{L}+ takes one sign together with the letters behind it.
  const uint8_t* Joined(const uint8_t* next) const {
    const uint8_t* after = nullptr;
    if (next != end_ && At(next, &after) == CharClass::kLetter) {
      return Run(after, CharClass::kLetter);
    }
    return Signs(next);
  }

  const uint8_t* Space(const uint8_t* p, const uint8_t* next, CharClass c) const {
    const uint8_t* after = nullptr;
    if (next != end_) {
      const CharClass following = At(next, &after);
      // [^\r\n\p{L}\p{N}]?\p{L}+ takes any white space but line ends, ` ?\p{L}+` of GPT-2 only a
      // space.
      if (kIsGpt2 ? *p == ' ' : c == CharClass::kSpace) {
        if (following == CharClass::kLetter) {
          return Run(after, CharClass::kLetter);
        }
      }
      if (*p == ' ' && following == CharClass::kOther) {
        return Signs(after);
      }
      if (kIsGpt2 && *p == ' ' && following == CharClass::kNumber) {
        return Run(after, CharClass::kNumber);
      }
    }
    const uint8_t* last = p;  // begin of the last character of the run of white space
    const uint8_t* lines = c == CharClass::kNewline ? next : nullptr;  // end of its last line end
    const uint8_t* end = next;
    while (end != end_) {
      const CharClass following = At(end, &after);
      if (!IsSpace(following)) {
        break;
      }
      last = end;
      end = after;
      if (following == CharClass::kNewline) {
        lines = after;
      }
    }
    if (!kIsGpt2 && lines != nullptr) {
      return lines;  // \s*[\r\n]+
    }
    // \s+(?!\S) leaves the last space to what follows it; a single one stands alone.
    return end == end_ || last == p ? end : last;
  }

  // The end of s, t, re, ve, m, ll, d at `p`, behind an apostrophe; nullptr: none of them. Llama-3
  // and Qwen ignore case, and then the long s (U+017F) is an s.
  const uint8_t* Contraction(const uint8_t* p) const {
    if (p == end_) {
      return nullptr;
    }
    const int fold = kIsGpt2 ? 0 : 0x20;
    const int a = *p | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
      return p + 1;
    }
    if (p + 1 == end_) {
      return nullptr;
    }
    const int b = p[1] | fold;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
      return p + 2;
    }
    return !kIsGpt2 && p[0] == 0xc5 && p[1] == 0xbf ? p + 2 : nullptr;
  }

  const uint8_t* begin_;
  const uint8_t* p_;
  const uint8_t* end_;
  const CharClasses& classes_;
};

}  // namespace hearth::tokenizer
