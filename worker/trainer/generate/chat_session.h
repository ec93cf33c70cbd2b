// A conversation with a model: turns as the chat template writes them, answers as they come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/chat/chat_template.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "worker/trainer/generate/growing_text.h"

namespace hearth::trainer {

// What ends an answer of the template: tokens, or where the tokenizer has no token for it a text.
struct AnswerEnd {
  std::vector<int32_t> tokens;
  std::vector<std::string> stops;
};

// Errors: those of ChatTemplate::EndOfAnswer and Tokenizer::Encode.
absl::StatusOr<AnswerEnd> FindAnswerEnd(const chat::ChatTemplate& chat_template,
                                        dataset::Tokenizer& tokenizer);

// Not thread-safe.
class ChatSession {
 public:
  struct Options {
    std::string system;    // first message; empty = none
    int64_t tokens = 512;  // of an answer, at most
    AnswerEnd end;
  };

  // All outlive the object; the generator has a batch of one.
  ChatSession(Generator& generator,
              dataset::Tokenizer& tokenizer,
              const chat::ChatTemplate& chat_template,
              Options options);

  // The answer to `message`; both join the conversation, after an error neither does.
  // kResourceExhausted: the generator has no room for the conversation; otherwise errors of
  // ChatTemplate::Render and StreamText.
  absl::StatusOr<StreamedText> Say(const std::string& message, const TextSink& sink);
  // Forgets all but the system message.
  void Reset();

  const chat::Conversation& conversation() const { return conversation_; }
  // Tokens of the conversation that the last Say had to compute.
  int64_t computed() const { return text_.computed(); }

 private:
  Generator& generator_;
  dataset::Tokenizer& tokenizer_;
  const chat::ChatTemplate& template_;
  const Options options_;
  GrowingText text_;
  chat::Conversation conversation_;
};

}  // namespace hearth::trainer
