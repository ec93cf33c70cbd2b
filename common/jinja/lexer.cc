#include "common/jinja/lexer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::jinja {
namespace {

using Kind = Token::Kind;

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr std::string_view kSpaces = " \t\n\r\f\v";
// The longer ones first.
constexpr std::string_view kOperators[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*",
                                           "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                           "]",  "{",  "}",  ",",  ".",  ":",  "|"};

bool IsNameStart(char c) {
  return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_';
}

bool IsNamePart(char c) {
  return IsNameStart(c) || absl::ascii_isdigit(static_cast<unsigned char>(c));
}

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xc0 | (code >> 6)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out->push_back(static_cast<char>(0xe0 | (code >> 12)));
    out->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

class Lexer {
 public:
  Lexer(std::string text, std::string_view name) : text_(std::move(text)), name_(name) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < text_.size()) {
      const size_t tag = FindTag();
      AddText(tag);
      if (tag == text_.size()) {
        break;
      }
      HEARTH_RETURN_IF_ERROR(text_[tag + 1] == '#' ? SkipComment() : ReadTag());
    }
    Add(Kind::kEnd, "", at_);
    return std::move(tokens_);
  }

 private:
  size_t FindTag() const {
    for (size_t tag = at_; (tag = text_.find('{', tag)) < text_.size() - 1; ++tag) {
      if (std::string_view("{%#").find(text_[tag + 1]) != std::string_view::npos) {
        return tag;
      }
    }
    return text_.size();
  }

  // The text from at_ up to the tag, or to the end.
  void AddText(size_t tag) {
    std::string_view text = std::string_view(text_).substr(at_, tag - at_);
    if (tag < text_.size()) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      if (sign == '-') {
        text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
      } else if (sign != '+' && text_[tag + 1] != '{') {
        text = WithoutIndent(text);
      }
    }
    if (!text.empty()) {
      Add(Kind::kText, std::string(text), at_);
    }
    at_ = tag;
  }

  // lstrip_blocks: without the white space between the beginning of a line and a tag.
  std::string_view WithoutIndent(std::string_view text) const {
    const size_t line = text.rfind('\n');
    const size_t begin = line == std::string_view::npos ? 0 : line + 1;
    const bool at_line = begin > 0 || at_ == 0 || text_[at_ - 1] == '\n';
    const bool blank = text.find_first_not_of(kSpaces, begin) == std::string_view::npos;
    return at_line && blank ? text.substr(0, begin) : text;
  }

  // Behind a tag that ends at `end`, whose sign is the character before its last two.
  void Leave(size_t end, bool trims_line) {
    at_ = end;
    const char sign = text_[end - 3];
    if (sign == '-') {
      at_ = std::min(text_.find_first_not_of(kSpaces, at_), text_.size());
    } else if (sign != '+' && trims_line && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
    }
  }

  absl::Status SkipComment() {
    const size_t end = text_.find("#}", at_ + 2);
    if (end == std::string::npos) {
      return SyntaxError(name_, PlaceOf(at_), "a comment without end");
    }
    Leave(end + 2, true);
    return absl::OkStatus();
  }

  absl::Status ReadTag() {
    const bool block = text_[at_ + 1] == '%';
    const size_t begin = at_;
    Add(block ? Kind::kBlock : Kind::kPrint, text_.substr(at_, 2), at_);
    at_ += 2;
    if (at_ < text_.size() && (text_[at_] == '-' || (text_[at_] == '+' && block))) {
      ++at_;
    }
    const std::string_view close = block ? "%}" : "}}";
    int braces = 0;
    while (true) {
      at_ = std::min(text_.find_first_not_of(kSpaces, at_), text_.size());
      if (at_ == text_.size()) {
        return SyntaxError(name_, PlaceOf(begin), "a tag without end");
      }
      const std::string_view rest = std::string_view(text_).substr(at_);
      const bool sign = rest[0] == '-' || rest[0] == '+';
      if (braces == 0 && rest.substr(sign ? 1 : 0).starts_with(close)) {
        Add(block ? Kind::kBlockEnd : Kind::kPrintEnd, std::string(close), at_);
        Leave(at_ + close.size() + (sign ? 1 : 0), block);
        return absl::OkStatus();
      }
      // Within the braces of a dict "}}" does not end the tag.
      braces += rest[0] == '{' ? 1 : rest[0] == '}' ? -1 : 0;
      HEARTH_RETURN_IF_ERROR(ReadToken());
    }
  }

  absl::Status ReadToken() {
    const size_t begin = at_;
    const char c = text_[at_];
    if (IsNameStart(c)) {
      while (at_ < text_.size() && IsNamePart(text_[at_])) {
        ++at_;
      }
      Add(Kind::kName, text_.substr(begin, at_ - begin), begin);
      return absl::OkStatus();
    }
    if (absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      return ReadNumber();
    }
    if (c == '\'' || c == '"') {
      return ReadString();
    }
    for (const std::string_view op : kOperators) {
      if (std::string_view(text_).substr(at_).starts_with(op)) {
        at_ += op.size();
        Add(Kind::kOperator, std::string(op), begin);
        return absl::OkStatus();
      }
    }
    return SyntaxError(name_, PlaceOf(at_), absl::StrCat("an unexpected character"));
  }

  absl::Status ReadNumber() {
    const size_t begin = at_;
    const auto digits = [this] {
      while (at_ < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      }
    };
    digits();
    const bool fraction = at_ + 1 < text_.size() && text_[at_] == '.' &&
                          absl::ascii_isdigit(static_cast<unsigned char>(text_[at_ + 1]));
    if (fraction) {
      ++at_;
      digits();
    }
    Add(fraction ? Kind::kFloat : Kind::kInteger, text_.substr(begin, at_ - begin), begin);
    return absl::OkStatus();
  }

  absl::Status ReadString() {
    const size_t begin = at_;
    const char quote = text_[at_++];
    std::string value;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        HEARTH_RETURN_IF_ERROR(ReadEscape(&value));
      } else {
        value.push_back(text_[at_++]);
      }
    }
    if (at_ == text_.size()) {
      return SyntaxError(name_, PlaceOf(begin), "a string without end");
    }
    ++at_;
    Add(Kind::kString, std::move(value), begin);
    return absl::OkStatus();
  }

  absl::Status ReadEscape(std::string* value) {
    static constexpr std::pair<char, char> kSimple[] = {{'n', '\n'},  {'t', '\t'},  {'r', '\r'},
                                                        {'\\', '\\'}, {'\'', '\''}, {'"', '"'},
                                                        {'b', '\b'},  {'f', '\f'},  {'0', '\0'}};
    const size_t begin = at_;
    const char c = text_[at_ + 1];
    at_ += 2;
    for (const auto& [letter, meaning] : kSimple) {
      if (c == letter) {
        value->push_back(meaning);
        return absl::OkStatus();
      }
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    if (digits == 0) {  // Python keeps what it does not know
      *value += {'\\', c};
      return absl::OkStatus();
    }
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      if (at_ == text_.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text_[at_]))) {
        return SyntaxError(name_, PlaceOf(begin), "an escape of too few digits");
      }
      const char digit = absl::ascii_tolower(static_cast<unsigned char>(text_[at_]));
      code = code * 16 + static_cast<uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if (code >= 0xd800 && code < 0xe000) {
      return Refusal(name_, PlaceOf(begin), "half of a surrogate pair");
    }
    AppendUtf8(code, value);
    return absl::OkStatus();
  }

  void Add(Kind kind, std::string text, size_t at) {
    tokens_.push_back({kind, std::move(text), PlaceOf(at)});
  }

  // Fast for places in rising order.
  Place PlaceOf(size_t at) {
    if (at < counted_) {
      counted_ = line_begin_ = 0;
      line_ = 1;
    }
    for (; counted_ < at; ++counted_) {
      if (text_[counted_] == '\n') {
        ++line_;
        line_begin_ = counted_ + 1;
      }
    }
    return {line_, static_cast<int>(at - line_begin_) + 1};
  }

  const std::string text_;
  const std::string_view name_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  size_t counted_ = 0;  // line_ and line_begin_ are those of this place
  size_t line_begin_ = 0;
  int line_ = 1;
};

std::string Message(std::string_view name, const Place& place, std::string_view what) {
  return absl::StrCat(std::string(name), ":", place.line, ":", place.column, ": ",
                      std::string(what));
}

}  // namespace

absl::Status SyntaxError(std::string_view name, const Place& place, std::string_view what) {
  return absl::InvalidArgumentError(Message(name, place, what));
}

absl::Status Refusal(std::string_view name, const Place& place, std::string_view what) {
  return absl::UnimplementedError(Message(name, place, what));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view text, std::string_view name) {
  if (text.size() > kMaxBytes) {
    return SyntaxError(name, Place(),
                       absl::StrCat("a template of more than ", kMaxBytes, " bytes"));
  }
  std::string clean;
  clean.reserve(text.size());
  // Line ends are "\n" alone from here on, as in Jinja.
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      clean.push_back(text[i]);
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      clean.push_back('\n');
    }
  }
  if (!clean.empty() && clean.back() == '\n') {  // as Jinja does
    clean.pop_back();
  }
  return Lexer(std::move(clean), name).Run();
}

}  // namespace hearth::jinja
