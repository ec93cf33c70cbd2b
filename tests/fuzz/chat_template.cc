#include "common/chat/chat_template.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/chat_data.h"
#include "common/jinja/template.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {

// A line of chat data in front of a line end, and behind it a template. What is taken ends, and
// says of the text which parts are answers.
bool ChatTemplate(std::string_view bytes) {
  const size_t line_end = std::min(bytes.find('\n'), bytes.size());
  const auto conversation =
      chat::ParseConversation(bytes.substr(0, line_end), chat::kAnyLayout, "line");
  const std::string_view text = bytes.substr(std::min(line_end + 1, bytes.size()));
  const auto parsed = jinja::Template::Parse(text, "template");
  if (parsed.ok()) {
    // Less than jobs have, so that many inputs are tried in a second.
    const jinja::Limits limits = {.steps = 20000, .bytes = 1 << 20};
    parsed->Render({{"name", jinja::Value::String("value")}}, limits).status().IgnoreError();
  }
  if (!conversation.ok() || !parsed.ok()) {
    return false;
  }
  const auto again = chat::FromText(chat::ToText(*conversation));
  HEARTH_CHECK(again.ok() && again->size() == conversation->size(), "ToText can be read");
  const auto chat = chat::ChatTemplate::FromFiles(
      {{std::string(chat::kTemplateFileName), std::string(text)}}, "");
  HEARTH_CHECK(chat.ok(), "the same template is parsed again");
  if (conversation->size() > 4) {
    return true;
  }
  const auto answers = chat->FindAnswers(*conversation);
  if (!answers.ok()) {
    return false;
  }
  size_t at = 0;
  for (const jinja::Rendered::Range& range : answers->ranges) {
    HEARTH_CHECK(at <= range.begin && range.begin <= range.end && range.end <= answers->text.size(),
                 "answers lie in the text, one behind the other");
    at = range.end;
  }
  return true;
}

}  // namespace hearth::fuzz
