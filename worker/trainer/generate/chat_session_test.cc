#include "worker/trainer/generate/chat_session.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/trainer/byte_generator.h"

namespace hearth::trainer {
namespace {

// Short, so that conversations fit the small model.
chat::ChatTemplate Template() {
  auto opened = chat::ChatTemplate::FromFiles(
      {{"chat_template.jinja",
        "{% for m in messages %}{{ m['role'][0] + ':' + m['content'] + '~' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'a:' }}{% endif %}"}},
      "test");
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

class ChatSessionTest : public testing::Test {
 protected:
  ChatSession Session(const std::string& system = "", int64_t tokens = 12) {
    ChatSession::Options options;
    options.system = system;
    options.tokens = tokens;
    options.end = *FindAnswerEnd(template_, *tokenizer_);
    return ChatSession(*generator_, *tokenizer_, template_, std::move(options));
  }
  StreamedText Say(ChatSession& session, const std::string& message) {
    std::string pieces;
    const auto answer = session.Say(message, [&pieces](std::string_view piece) {
      pieces += piece;
      return true;
    });
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(pieces, answer->text);
    return *answer;
  }

  const chat::ChatTemplate template_ = Template();
  const std::unique_ptr<dataset::Tokenizer> tokenizer_ = dataset::NewBytesTokenizer();
  // Random weights rarely write letters that a template reads back as they are; bytes do.
  const std::unique_ptr<Generator> generator_ =
      MakeByteGenerator({.prompt = 8, .length = 200, .temperature = 0.7});
};

TEST_F(ChatSessionTest, SecondTurn_ComputesOnlyWhatIsNew_AndEqualsANewSession) {
  ChatSession session = Session();
  const StreamedText first = Say(session, "hello");
  EXPECT_EQ(session.computed(), static_cast<int64_t>(std::string("u:hello~a:").size()));
  const StreamedText second = Say(session, "more");
  // The answer's last token, what ends the answer, and the new message.
  EXPECT_LE(session.computed(), static_cast<int64_t>(std::string("x~u:more~a:").size()));
  // The same conversation without anything kept.
  const std::string text = "u:hello~a:" + first.text + "~u:more~a:";
  const auto other = MakeByteGenerator({.prompt = 8, .length = 200, .temperature = 0.7});
  GrowingText whole(*other);
  StreamOptions options;
  options.tokens = 12;
  options.stops = {"~"};
  options.ends = FindAnswerEnd(template_, *tokenizer_)->tokens;
  const auto again = StreamText(whole, *tokenizer_, *tokenizer_->Encode(text), options,
                                [](std::string_view) { return true; });
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(second.text, again->text);
  EXPECT_EQ(second.end, again->end);
  ASSERT_EQ(session.conversation().size(), 4U);
  EXPECT_EQ(session.conversation()[3].content, second.text);
}

TEST_F(ChatSessionTest, Reset_KeepsTheSystemMessageAlone) {
  ChatSession session = Session("be brief");
  const StreamedText first = Say(session, "hi");
  Say(session, "more");
  session.Reset();
  ASSERT_EQ(session.conversation().size(), 1U);
  EXPECT_EQ(session.conversation()[0].role, "system");
  EXPECT_EQ(Say(session, "hi").text, first.text) << "the same text draws the same answer";
}

TEST_F(ChatSessionTest, NoRoom_IsAnErrorThatChangesNothing) {
  ChatSession session = Session();
  Say(session, "hi");
  const auto refused = session.Say(std::string(300, 'x'), [](std::string_view) { return true; });
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(session.conversation().size(), 2U);
  Say(session, "go on");
  EXPECT_EQ(session.conversation().size(), 4U);
}

TEST_F(ChatSessionTest, AnswerEnd_IsATokenOrAText) {
  const AnswerEnd end = *FindAnswerEnd(template_, *tokenizer_);
  EXPECT_EQ(end.tokens, std::vector<int32_t>{'~'});
  EXPECT_TRUE(end.stops.empty());
  const auto chatml = *chat::ChatTemplate::FromFiles(
      {{"chat_template.jinja", std::string(chat::NamedTemplates()[0].text)}}, "chatml");
  const AnswerEnd text = *FindAnswerEnd(chatml, *tokenizer_);
  EXPECT_TRUE(text.tokens.empty());
  EXPECT_EQ(text.stops, std::vector<std::string>{"<|im_end|>"});
}

}  // namespace
}  // namespace hearth::trainer
