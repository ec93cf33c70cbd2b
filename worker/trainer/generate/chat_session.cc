#include "worker/trainer/generate/chat_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {

absl::StatusOr<AnswerEnd> FindAnswerEnd(const chat::ChatTemplate& chat_template,
                                        dataset::Tokenizer& tokenizer) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, chat_template.EndOfAnswer());
  AnswerEnd end;
  if (text.empty()) {
    return end;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer.Encode(text));
  // One token is seen as soon as it is drawn. Several have to be looked for in the text.
  if (tokens.size() == 1) {
    end.tokens = tokens;
  } else {
    end.stops = {text};
  }
  return end;
}

ChatSession::ChatSession(Generator& generator,
                         dataset::Tokenizer& tokenizer,
                         const chat::ChatTemplate& chat_template,
                         Options options)
    : generator_(generator),
      tokenizer_(tokenizer),
      template_(chat_template),
      options_(std::move(options)),
      text_(generator) {
  Reset();
}

void ChatSession::Reset() {
  conversation_.clear();
  if (!options_.system.empty()) {
    conversation_.push_back({"system", options_.system});
  }
}

absl::StatusOr<StreamedText> ChatSession::Say(const std::string& message, const TextSink& sink) {
  chat::Conversation said = conversation_;
  said.push_back({"user", message});
  HEARTH_ASSIGN_OR_RETURN(const std::string text,
                          template_.Render(said, /*add_generation_prompt=*/true));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer_.Encode(text));
  const int64_t room = generator_.plan_options().length;
  if (static_cast<int64_t>(tokens.size()) >= room) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the conversation has ", tokens.size(), " tokens, and there is room for ",
                     room, " with the answer: begin a new one, or give more room"));
  }
  StreamOptions options;
  options.tokens = options_.tokens;
  options.stops = options_.end.stops;
  options.ends = options_.end.tokens;
  HEARTH_ASSIGN_OR_RETURN(StreamedText answer,
                          StreamText(text_, tokenizer_, tokens, options, sink));
  // Only now: a message without an answer leaves no trace in the conversation.
  said.push_back({"assistant", answer.text});
  conversation_ = std::move(said);
  return answer;
}

}  // namespace hearth::trainer
