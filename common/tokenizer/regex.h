// The regular expressions of tokenizer.json through PCRE2. They are written for Oniguruma: what
// both read alike is accepted, \s and \p{Script} are translated, the rest is refused by name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth::tokenizer {

// Memory of one search. Not thread-safe; may serve many expressions one after the other.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

// A compiled expression. Thread-safe.
class Regex {
 public:
  // kInvalidArgument with the position: not an expression, or one that matches the empty string;
  // kUnimplemented: a construct that PCRE2 reads otherwise than Oniguruma.
  static absl::StatusOr<std::unique_ptr<Regex>> Compile(std::string_view pattern);
  // An expression in PCRE2's own dialect.
  static absl::StatusOr<std::unique_ptr<Regex>> CompilePcre2(const std::string& pattern);
  // Matches exactly `text`, which must not be empty.
  static absl::StatusOr<std::unique_ptr<Regex>> Literal(std::string_view text);

  ~Regex();

  // The first match at or after byte `from`; `text` is valid UTF-8. false: none.
  // kResourceExhausted with the offset: the expression needs too many steps or too much stack.
  absl::StatusOr<bool> Find(
      std::string_view text, size_t from, RegexScratch* scratch, size_t* begin, size_t* end) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  static absl::StatusOr<std::unique_ptr<Regex>> CompileTranslated(const std::string& pattern,
                                                                  uint32_t options);
  std::unique_ptr<Code> code_;
};

// The PCRE2 expression that matches what `pattern` matches in Oniguruma. Errors as of Compile.
absl::StatusOr<std::string> TranslatePattern(std::string_view pattern);

}  // namespace hearth::tokenizer
