// Which parts of a conversation's text are answers.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/chat_template.h"
#include "common/jinja/characters.h"

namespace hearth::chat {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

size_t CommonSuffix(std::string_view a, std::string_view b) {
  const auto n = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rbegin() + n, b.rbegin()).first -
                             a.rbegin());
}

// White space, and the first word behind it: what a template prints to end an answer.
std::string_view FirstWord(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(0, text.find_first_of(kBlanks, begin));
}

}  // namespace

// Asks the template what it does with one message: a text rendered with another content there
// differs from the first in the content alone.
class ChatTemplate::AnswerFinder {
 public:
  AnswerFinder(const ChatTemplate& chat, const Conversation& messages)
      : chat_(chat), messages_(messages) {}

  absl::StatusOr<Answers> Run() {
    HEARTH_ASSIGN_OR_RETURN(jinja::Rendered rendered, chat_.RenderAll(messages_, false));
    Answers answers;
    answers.text = std::move(rendered.text);
    if (chat_.template_.marks_generation()) {
      answers.ranges = std::move(rendered.generation);
      return answers;
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].role == "assistant") {
        HEARTH_ASSIGN_OR_RETURN(const jinja::Rendered::Range range, RangeOf(answers.text, i));
        if (!answers.ranges.empty() && range.begin < answers.ranges.back().end) {
          return Unclear(i);
        }
        answers.ranges.push_back(range);
      }
    }
    return answers;
  }

  // What the template prints behind the content of the last message.
  absl::StatusOr<std::string> EndToken() {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, chat_.Render(messages_, false));
    HEARTH_ASSIGN_OR_RETURN(const size_t end,
                            ContentEnd(text, messages_.size(), messages_.size() - 1));
    return std::string(FirstWord(std::string_view(text).substr(end)));
  }

 private:
  static absl::Status Unclear(size_t i) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", i + 1,
                     ": the chat template does not print it so that its text can be told from the "
                     "rest; {% generation %} blocks in the template would say which it is"));
  }

  // The first `count` messages, message i with another content.
  absl::StatusOr<std::string> RenderWith(size_t count, size_t i, std::string content) const {
    Conversation changed(messages_.begin(), messages_.begin() + static_cast<int64_t>(count));
    changed[i].content = std::move(content);
    return chat_.Render(changed, false);
  }

  // Where the content of message i ends in `text`, the first `count` messages. At least one of two
  // letters behind the content differs from what stands before the end.
  absl::StatusOr<size_t> ContentEnd(std::string_view text, size_t count, size_t i) const {
    // Many templates strip the content; white space at its end would then not be found.
    const std::string content(jinja::Strip(messages_[i].content, nullptr, false, true));
    size_t behind = text.size();
    for (const std::string_view letter : {"x", "y"}) {
      HEARTH_ASSIGN_OR_RETURN(const std::string other,
                              RenderWith(count, i, absl::StrCat(content, std::string(letter))));
      behind = std::min(behind, CommonSuffix(text, other));
      if (other == text) {
        return Unclear(i);
      }
    }
    return text.size() - behind;
  }

  absl::StatusOr<size_t> ContentBegin(std::string_view text, size_t i) const {
    const std::string content(jinja::Strip(messages_[i].content, nullptr, true, false));
    size_t before = text.size();
    for (const std::string_view letter : {"x", "y"}) {
      HEARTH_ASSIGN_OR_RETURN(
          const std::string other,
          RenderWith(messages_.size(), i, absl::StrCat(std::string(letter), content)));
      before = std::min(before, CommonPrefix(text, other));
    }
    return before;
  }

  // Behind the generation prompt, where the template has one and the text begins with it.
  absl::StatusOr<size_t> AnswerBegin(std::string_view text, size_t i) const {
    const Conversation before(messages_.begin(), messages_.begin() + static_cast<int64_t>(i));
    const absl::StatusOr<std::string> prompt = chat_.Render(before, true);
    const absl::StatusOr<std::string> plain = chat_.Render(before, false);
    // Some templates raise an exception about a beginning of a conversation.
    const bool prompts = prompt.ok() && plain.ok() && *prompt != *plain;
    if (prompts && text.starts_with(*prompt)) {
      return prompt->size();
    }
    return ContentBegin(text, i);
  }

  absl::StatusOr<jinja::Rendered::Range> RangeOf(std::string_view text, size_t i) const {
    HEARTH_ASSIGN_OR_RETURN(const size_t content_end, ContentEnd(text, messages_.size(), i));
    HEARTH_ASSIGN_OR_RETURN(const size_t begin, AnswerBegin(text, i));
    // Renders the conversation up to this answer: what follows the answer there ends it.
    const Conversation upto(messages_.begin(), messages_.begin() + static_cast<int64_t>(i) + 1);
    HEARTH_ASSIGN_OR_RETURN(const std::string last, chat_.Render(upto, false));
    HEARTH_ASSIGN_OR_RETURN(const size_t last_end, ContentEnd(last, i + 1, i));
    const std::string_view end = FirstWord(std::string_view(last).substr(last_end));
    if (begin > content_end || !text.substr(content_end).starts_with(end)) {
      return Unclear(i);
    }
    return jinja::Rendered::Range{begin, content_end + end.size()};
  }

  const ChatTemplate& chat_;
  const Conversation& messages_;
};

absl::StatusOr<ChatTemplate::Answers> ChatTemplate::FindAnswers(
    const Conversation& messages) const {
  return AnswerFinder(*this, messages).Run();
}

absl::StatusOr<std::string> ChatTemplate::EndOfAnswer() const {
  const Conversation example = {{"user", "a"}, {"assistant", "b"}};
  HEARTH_ASSIGN_OR_RETURN(const std::string end, AnswerFinder(*this, example).EndToken());
  return std::string(jinja::Strip(end, nullptr, true, true));
}

}  // namespace hearth::chat
