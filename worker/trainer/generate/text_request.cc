#include "worker/trainer/generate/text_request.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/fields/rows.h"
#include "common/spec/model/position_limit.h"
#include "common/tokenizer/unicode.h"

namespace hearth::trainer {

kernels::SamplingRule RuleOf(const v1::TextRequest& text) {
  kernels::SamplingRule rule;  // begins with the defaults
  if (text.has_temperature()) {
    rule.temperature = text.temperature();
  }
  rule.top_k = text.top_k();
  if (text.has_top_p()) {
    rule.top_p = text.top_p();
  }
  rule.min_p = text.min_p();
  if (text.has_repetition_penalty()) {
    rule.repetition_penalty = text.repetition_penalty();
  }
  rule.seed = static_cast<uint64_t>(text.seed());
  return rule;
}

int64_t TokensOf(const v1::TextRequest& text) {
  return text.max_tokens() > 0
             ? text.max_tokens()
             : spec::IntOrDefault(v1::TextRequest(), v1::TextRequest::kMaxTokensFieldNumber);
}

v1::TextEnd EndOf(TextEnd end) {
  switch (end) {
    case TextEnd::kEndToken:
      return v1::TEXT_END_TOKEN;
    case TextEnd::kStop:
      return v1::TEXT_END_STOP;
    case TextEnd::kLength:
      break;
  }
  return v1::TEXT_END_LENGTH;
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const std::string& prompt,
                                                  dataset::Tokenizer& tokenizer,
                                                  const v1::ModelSpec& model) {
  HEARTH_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.Encode(prompt));
  if (tokens.empty()) {
    // Documents begin after the end of another.
    tokens.push_back(std::max(tokenizer.eos(), 0));
  }
  for (const int32_t token : tokens) {
    if (token >= model.vocab()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a prompt's tokenizer has token ", token, ", the model a vocabulary of ", model.vocab()));
    }
  }
  const auto count = static_cast<int64_t>(tokens.size());
  const std::optional<int64_t> limit = spec::PositionLimit(model);
  if (limit.has_value() && count >= *limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", count, " tokens: the model learned ", *limit, " positions"));
  }
  return tokens;
}

std::string Characters(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = tokenizer::FirstInvalidUtf8(text);
    out.append(text.substr(0, valid));
    if (valid < text.size()) {
      out += "\xEF\xBF\xBD";
    }
    text.remove_prefix(std::min(text.size(), valid + 1));
  }
  return out;
}

}  // namespace hearth::trainer
