#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/tokenizer/regex.h"

#include <pcre2.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::tokenizer {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr size_t kJitStackBytes = size_t{8} << 20;

std::string PcreMessage(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct RegexScratch::State {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{64} << 10, kJitStackBytes, nullptr);

  State() {
    HEARTH_CHECK(match != nullptr && context != nullptr, "PCRE2 gets memory");
    pcre2_set_match_limit(context, kMatchLimit);
    if (stack != nullptr) {  // else there is no JIT for this CPU
      pcre2_jit_stack_assign(context, nullptr, stack);
    }
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  explicit Code(pcre2_code* c) : code(c) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;

absl::StatusOr<std::unique_ptr<Regex>> Regex::CompileTranslated(const std::string& pattern,
                                                                uint32_t options) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | options, &error, &at, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("at byte ", at, " of \"", pattern, "\": ", PcreMessage(error)));
  }
  auto owned = std::make_unique<Code>(code);
  // A match of nothing would keep the cutting at one place for ever.
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::InvalidArgumentError(absl::StrCat("\"", pattern, "\" matches the empty string"));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT it is interpreted
  return std::unique_ptr<Regex>(new Regex(std::move(owned)));
}

absl::StatusOr<std::unique_ptr<Regex>> Regex::Compile(std::string_view pattern) {
  HEARTH_ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern));
  return CompilePcre2(translated);
}

absl::StatusOr<std::unique_ptr<Regex>> Regex::CompilePcre2(const std::string& pattern) {
  return CompileTranslated(pattern, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
}

absl::StatusOr<std::unique_ptr<Regex>> Regex::Literal(std::string_view text) {
  if (text.empty()) {
    return absl::InvalidArgumentError("the string is empty");
  }
  return CompileTranslated(std::string(text), PCRE2_LITERAL);
}

absl::StatusOr<bool> Regex::Find(
    std::string_view text, size_t from, RegexScratch* scratch, size_t* begin, size_t* end) const {
  // The caller has checked the text once. A check at each match would read all the rest again.
  const int result =
      pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                  PCRE2_NO_UTF_CHECK, scratch->state_->match, scratch->state_->context);
  if (result == PCRE2_ERROR_NOMATCH) {
    return false;
  }
  if (result < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the regular expression fails at byte ", from, ": ", PcreMessage(result)));
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch->state_->match);
  *begin = range[0];
  *end = range[1];
  return *end > *begin;
}

}  // namespace hearth::tokenizer
