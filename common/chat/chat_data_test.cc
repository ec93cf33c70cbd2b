#include "common/chat/chat_data.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::chat {
namespace {

using ::testing::HasSubstr;

std::string Parsed(std::string_view line, std::string_view layout = kAnyLayout) {
  const absl::StatusOr<Conversation> conversation = ParseConversation(line, layout, "f:3");
  return conversation.ok() ? ToText(*conversation) : std::string(conversation.status().message());
}

TEST(ConversationTest, Parse_EachLayout_IsTheSameConversation) {
  const std::string wanted = R"([["system","S"],["user","Q\n\nI"],["assistant","A"]])";
  constexpr std::pair<std::string_view, std::string_view> kLines[] = {
      {"messages",
       R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q\n\nI"},
           {"role": "assistant", "content": "A", "weight": 1, "tool_calls": null}], "id": 7})"},
      {"sharegpt",
       R"({"system": "S", "conversations": [{"from": "human", "value": "Q\n\nI"},
           {"from": "gpt", "value": "A"}], "tools": []})"},
      {"alpaca", R"({"instruction": "Q", "input": "I", "output": "A", "system": "S"})"}};
  ASSERT_EQ(std::size(kLines), ChatLayouts().size()) << "a line for each row of the table";
  for (const auto& [layout, line] : kLines) {
    EXPECT_EQ(Parsed(line), wanted) << layout;
    EXPECT_EQ(Parsed(line, layout), wanted) << layout;
  }
  EXPECT_EQ(Parsed(R"({"instruction": "Q", "input": "", "output": ""})"),
            R"([["user","Q"],["assistant",""]])");
}

TEST(ConversationTest, Parse_Malformed_IsRefusedWithThePlace) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"{", "f:3: "},
      {"[1]", "f:3: not an object"},
      {R"({"text": "a"})",
       "f:3: no conversation: it has none of the keys \"messages\" (messages), "},
      {R"({"messages": {}})", "f:3: \"messages\" is not a list"},
      {R"({"messages": []})", "f:3: a conversation without an assistant message"},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "without an assistant message"},
      {R"({"messages": [1]})", "f:3: message 1: not an object"},
      {R"({"messages": [{"role": "bot", "content": "a"}]})",
       "f:3: message 1: \"bot\" is not one of system, user, assistant"},
      {R"({"messages": [{"role": "user"}]})", "f:3: message 1: no \"content\""},
      {R"({"messages": [{"role": "user", "content": ["a"]}]})", "\"content\" is not a string"},
      {R"({"messages": [{"role": "user", "content": "a\u0000"}]})", "has a NUL character"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "",
           "tool_calls": [{}]}]})",
       "f:3: message 2: \"tool_calls\": conversations with tools are not supported"},
      {R"({"messages": [], "tools": [{}]})", "\"tools\": conversations with tools"},
      {R"({"messages": [{"role": "user", "content": "a", "weight": 0}]})",
       "\"weight\" other than 1"},
      {R"({"conversations": [{"from": "tool", "value": "a"}]})",
       "\"tool\" is not one of system, human"},
      {R"({"instruction": "a"})", "f:3: no \"output\""},
      {R"({"instruction": "a", "output": "b", "history": [["c", "d"]]})", "\"history\" is not"},
  };
  for (const auto& [line, wanted] : kCases) {
    EXPECT_THAT(Parsed(line), HasSubstr(std::string(wanted))) << line;
  }
  EXPECT_THAT(Parsed(R"({"messages": []})", "alpaca"), HasSubstr("no \"instruction\""));
}

TEST(ConversationTest, FromText_IsTheInverseOfToText) {
  const Conversation conversation = {{"user", "a\"\n\u4f60"}, {"assistant", ""}};
  const auto back = FromText(ToText(conversation));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToText(*back), ToText(conversation));
}

}  // namespace
}  // namespace hearth::chat
