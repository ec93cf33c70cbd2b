#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/unicode.h"

namespace hearth::tokenizer {
namespace {

// Groups that both engines read alike.
constexpr std::array<std::string_view, 7> kGroups = {
    "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};

// Oniguruma folds these pairs of letters to one ligature when it ignores case; PCRE2 does not.
constexpr std::array<std::string_view, 5> kLigatures = {"ff", "fi", "fl", "ss", "st"};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    if (const size_t bad = FirstInvalidUtf8(in_); bad != in_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("byte ", bad, " is not UTF-8"));
    }
    if (in_.size() > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", in_.size(), " bytes, at most ", kMaxBytes, " are allowed"));
    }
    while (at_ < in_.size()) {
      HEARTH_RETURN_IF_ERROR(in_set_ ? SetItem() : Item());
    }
    return std::move(out_);
  }

 private:
  static constexpr size_t kMaxBytes = 16384;

  absl::Status Refuse(std::string_view what) const {
    return absl::UnimplementedError(absl::StrCat("\"", std::string(what), "\" at byte ", at_,
                                                 " of \"", std::string(in_),
                                                 "\" is not supported"));
  }

  std::string_view Rest() const { return in_.substr(at_); }

  void Copy(size_t n) {
    out_.append(in_.substr(at_, n));
    at_ += n;
  }

  absl::Status Item() {
    switch (in_[at_]) {
      case '\\':
        return Escape();
      case '(':
        return Group();
      case '[':
        Copy(1);
        in_set_ = true;
        if (Rest().starts_with("^")) {
          Copy(1);
        }
        return Rest().starts_with("]") ? Refuse("[]") : absl::OkStatus();
      case '^':
      case '$':
        return Refuse(in_.substr(at_, 1));
      case '}':
        Copy(1);
        // Possessive in PCRE2, a repeated repeat in Oniguruma.
        return Rest().starts_with("+") ? Refuse("}+") : absl::OkStatus();
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status SetItem() {
    switch (in_[at_]) {
      case '\\':
        return Escape();
      case '[':
        return Refuse("[ in a set");
      case '&':
        if (Rest().starts_with("&&")) {
          return Refuse("&&");
        }
        Copy(1);
        return absl::OkStatus();
      case ']':
        in_set_ = false;
        Copy(1);
        return absl::OkStatus();
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status Group() {
    if (Rest().starts_with("(*")) {
      return Refuse("(*");
    }
    if (!Rest().starts_with("(?")) {
      Copy(1);
      return absl::OkStatus();
    }
    const auto* group = std::find_if(kGroups.begin(), kGroups.end(),
                                     [&](std::string_view g) { return Rest().starts_with(g); });
    if (group == kGroups.end()) {
      return Refuse(Rest().substr(0, 3));
    }
    if (*group == "(?i:") {
      HEARTH_RETURN_IF_ERROR(CheckFolding());
    }
    Copy(group->size());
    return absl::OkStatus();
  }

  // Where case is ignored: only ASCII, and no letters of a ligature side by side.
  absl::Status CheckFolding() const {
    const std::string_view rest = Rest();
    for (size_t i = 0; i < rest.size(); ++i) {
      if (static_cast<uint8_t>(rest[i]) >= 0x80) {
        return Refuse("(?i: before characters beyond ASCII");
      }
      if (i == 0) {
        continue;
      }
      const char pair[2] = {
          static_cast<char>(std::tolower(static_cast<unsigned char>(rest[i - 1]))),
          static_cast<char>(std::tolower(static_cast<unsigned char>(rest[i])))};
      const std::string_view both(pair, 2);
      if (std::find(kLigatures.begin(), kLigatures.end(), both) != kLigatures.end()) {
        return Refuse(absl::StrCat("(?i: with ", std::string(both)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Escape() {
    if (at_ + 1 >= in_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", std::string(in_), "\" ends in a backslash"));
    }
    const char c = in_[at_ + 1];
    if (c == 's' || c == 'S') {
      if (in_set_ && c == 'S') {
        return Refuse("\\S in a set");
      }
      absl::StrAppend(&out_, in_set_ ? "" : c == 's' ? "[" : "[^", kSpaceSet, in_set_ ? "" : "]");
      at_ += 2;
      return absl::OkStatus();
    }
    if (c == 'p' || c == 'P') {
      return Property();
    }
    if (Rest().starts_with("\\x{") || std::string_view("rntfdD").find(c) != in_.npos ||
        std::ispunct(static_cast<unsigned char>(c)) != 0 || c == ' ') {
      Copy(2);
      return absl::OkStatus();
    }
    return Refuse(Rest().substr(0, 2));
  }

  // PCRE2 takes \p{Han} for the script extensions, Oniguruma for the script.
  absl::Status Property() {
    const size_t close = Rest().find('}');
    if (Rest().size() < 4 || Rest()[2] != '{' || close == std::string_view::npos) {
      return Refuse(Rest().substr(0, 2));
    }
    std::string_view name = Rest().substr(3, close - 3);
    const bool negated = name.starts_with('^');
    name.remove_prefix(negated ? 1 : 0);
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](char ch) {
          return std::isalpha(static_cast<unsigned char>(ch)) != 0 || ch == '_';
        })) {
      return Refuse(Rest().substr(0, close + 1));
    }
    absl::StrAppend(&out_, std::string(Rest().substr(0, 3)), negated ? "^" : "",
                    name.size() <= 2 ? "" : "sc:", std::string(name), "}");
    at_ += close + 1;
    return absl::OkStatus();
  }

  const std::string_view in_;
  size_t at_ = 0;
  bool in_set_ = false;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslatePattern(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace hearth::tokenizer
