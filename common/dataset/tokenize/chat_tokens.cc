#include "common/dataset/tokenize/chat_tokens.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/status_macros.h"

namespace hearth::dataset {
namespace {

using Ranges = std::vector<jinja::Rendered::Range>;

constexpr char kCounts = static_cast<char>(kMaskCounts);

// Where each token ends in the text; nullopt: the tokens' bytes are not those of the text.
absl::StatusOr<std::optional<std::vector<size_t>>> EndsOf(std::string_view text,
                                                          Tokenizer& tokenizer,
                                                          const std::vector<int32_t>& tokens) {
  std::vector<size_t> ends;
  size_t at = 0;
  for (const int32_t token : tokens) {
    const absl::StatusOr<std::string> bytes = tokenizer.BytesOf(token);
    if (absl::IsUnimplemented(bytes.status())) {
      return std::nullopt;
    }
    HEARTH_RETURN_IF_ERROR(bytes.status());
    if (text.substr(at, bytes->size()) != *bytes) {
      return std::nullopt;
    }
    at += bytes->size();
    ends.push_back(at);
  }
  return at == text.size() ? std::optional(std::move(ends)) : std::nullopt;
}

std::string MaskByBytes(const std::vector<size_t>& ends, const Ranges& ranges) {
  std::string mask(ends.size(), '\0');
  size_t token = 0;
  for (const jinja::Rendered::Range& range : ranges) {
    while (token < ends.size() && ends[token] <= range.begin) {
      ++token;
    }
    // A token counts as soon as one of its bytes belongs to the answer.
    for (; token < ends.size() && (token == 0 ? 0 : ends[token - 1]) < range.end; ++token) {
      mask[token] = kCounts;
    }
  }
  return mask;
}

absl::StatusOr<std::string> MaskByParts(std::string_view text,
                                        Tokenizer& tokenizer,
                                        const std::vector<int32_t>& tokens,
                                        const Ranges& ranges) {
  std::vector<int32_t> joined;
  std::string mask;
  const auto add = [&](size_t begin, size_t end, char bits) -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t> part,
                            tokenizer.Encode(text.substr(begin, end - begin)));
    joined.insert(joined.end(), part.begin(), part.end());
    mask.append(part.size(), bits);
    return absl::OkStatus();
  };
  size_t at = 0;
  for (const jinja::Rendered::Range& range : ranges) {
    HEARTH_RETURN_IF_ERROR(add(at, range.begin, '\0'));
    HEARTH_RETURN_IF_ERROR(add(range.begin, range.end, kCounts));
    at = range.end;
  }
  HEARTH_RETURN_IF_ERROR(add(at, text.size(), '\0'));
  // Equal only if no token of the whole text spans a border.
  if (joined != tokens) {
    return absl::InvalidArgumentError(
        "a token belongs to an answer and to the text around it, and this tokenizer does not say "
        "which bytes are whose");
  }
  return mask;
}

}  // namespace

absl::StatusOr<ChatTokens> TokenizeChat(const chat::ChatTemplate& chat_template,
                                        Tokenizer& tokenizer,
                                        const chat::Conversation& conversation) {
  HEARTH_ASSIGN_OR_RETURN(const chat::ChatTemplate::Answers answers,
                          chat_template.FindAnswers(conversation));
  ChatTokens chat;
  HEARTH_ASSIGN_OR_RETURN(chat.tokens, tokenizer.Encode(answers.text));
  HEARTH_ASSIGN_OR_RETURN(const std::optional<std::vector<size_t>> ends,
                          EndsOf(answers.text, tokenizer, chat.tokens));
  if (ends.has_value()) {
    chat.mask = MaskByBytes(*ends, answers.ranges);
  } else {
    HEARTH_ASSIGN_OR_RETURN(chat.mask,
                            MaskByParts(answers.text, tokenizer, chat.tokens, answers.ranges));
  }
  // The first token is nobody's target.
  if (std::find(chat.mask.begin() + (chat.mask.empty() ? 0 : 1), chat.mask.end(), kCounts) ==
      chat.mask.end()) {
    return absl::InvalidArgumentError("no token of the conversation counts in the loss");
  }
  chat.mask.back() = static_cast<char>(chat.mask.back() | kMaskEnds);
  return chat;
}

}  // namespace hearth::dataset
