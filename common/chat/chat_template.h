// Chat templates of tokenizer folders: a conversation becomes the text that a model reads.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/chat/chat_data.h"
#include "common/io/env.h"
#include "common/jinja/template.h"

namespace hearth::chat {

// Files of a tokenizer folder that have the template, the first one before the second.
inline constexpr std::string_view kTemplateFileName = "chat_template.jinja";
inline constexpr std::string_view kConfigFileName = "tokenizer_config.json";  // "chat_template"

// A template that --chat-template may name. A row of the table that NamedTemplates returns.
struct NamedTemplate {
  std::string_view name;
  std::string_view text;
};
absl::Span<const NamedTemplate> NamedTemplates();

// Immutable, so thread-safe.
class ChatTemplate {
 public:
  // `files`: name and bytes of the files of a tokenizer folder `dir`. tokenizer_config.json also
  // says bos_token, eos_token, unk_token and pad_token; of a list of templates the one called
  // "default" counts. kNotFound: none of the files has a template; others as of
  // jinja::Template::Parse.
  static absl::StatusOr<ChatTemplate> FromFiles(const std::map<std::string, std::string>& files,
                                                const std::string& dir);
  // The same from a folder: a tokenizer's, a dataset's or a checkpoint's.
  static absl::StatusOr<ChatTemplate> Open(const std::string& dir, Env& env = Env::Real());

  // The text of the messages; with `add_generation_prompt` up to where the model's answer begins.
  // It has the template's special tokens, so it is encoded without adding any. Errors: those of
  // jinja::Template::Render.
  absl::StatusOr<std::string> Render(const Conversation& messages,
                                     bool add_generation_prompt) const;

  // What ends an answer, such as "<|im_end|>"; empty: the template prints nothing behind one.
  absl::StatusOr<std::string> EndOfAnswer() const;

  struct Answers {
    std::string text;                            // as Render gives it
    std::vector<jinja::Rendered::Range> ranges;  // of the answers in it, in order
  };
  // The text and the parts of it that a model has to write: what stands in {% generation %} blocks
  // if the template has any. Else of each assistant message what follows its generation prompt (of
  // a template without one, the content), up to the end of its end token. kInvalidArgument: the
  // template does not print an answer where one can be told from the rest.
  absl::StatusOr<Answers> FindAnswers(const Conversation& messages) const;

 private:
  class AnswerFinder;

  ChatTemplate(jinja::Template parsed, jinja::Value::Dict globals)
      : template_(std::move(parsed)), globals_(std::move(globals)) {}

  absl::StatusOr<jinja::Rendered> RenderAll(absl::Span<const Message> messages,
                                            bool add_generation_prompt) const;

  jinja::Template template_;
  jinja::Value::Dict globals_;  // those that are the same for all conversations
};

}  // namespace hearth::chat
