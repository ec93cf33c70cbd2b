// Conversations as tokens, with the mask that says which of them are answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/chat/chat_data.h"
#include "common/chat/chat_template.h"
#include "common/dataset/tokenize/tokenizer.h"

namespace hearth::dataset {

struct ChatTokens {
  std::vector<int32_t> tokens;  // those of the whole text that the template prints
  std::string mask;             // a byte for each, as in format.h; the last one ends the document
};

// A token counts if it has at least one byte of an answer (ChatTemplate::FindAnswers). Where the
// bytes of tokens are not those of the text (sentencepiece, a normaliser that changes it), the text
// is cut at the ends of answers, and the tokens of its parts must be those of the whole.
// kInvalidArgument: they are not; no token counts; errors of the template and of Encode.
absl::StatusOr<ChatTokens> TokenizeChat(const chat::ChatTemplate& chat_template,
                                        Tokenizer& tokenizer,
                                        const chat::Conversation& conversation);

}  // namespace hearth::dataset
