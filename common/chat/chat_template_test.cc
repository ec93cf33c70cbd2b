#include "common/chat/chat_template.h"

#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::chat {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string Data(const std::string& name) {
  std::ifstream file(absl::StrCat(GetEnv("HEARTH_SOURCE_DIR"), "/common/chat/testdata/", name));
  EXPECT_TRUE(file.good()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

ChatTemplate Open(const std::string& name) {
  auto opened = ChatTemplate::FromFiles(
      {{"chat_template.jinja", Data(name)},
       {"tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})"}},
      "dir");
  EXPECT_TRUE(opened.ok()) << name << ": " << opened.status();
  return *std::move(opened);
}

Conversation ConversationOf(const Json& json) {
  Conversation conversation;
  for (const Json& message : json) {
    conversation.push_back({message["role"], message["content"]});
  }
  return conversation;
}

// The answers that a template's text has.
std::vector<std::string> AnswersOf(const ChatTemplate& chat, const Conversation& conversation) {
  const auto answers = chat.FindAnswers(conversation);
  EXPECT_TRUE(answers.ok()) << answers.status();
  std::vector<std::string> texts;
  for (const jinja::Rendered::Range& range : answers->ranges) {
    texts.push_back(answers->text.substr(range.begin, range.end - range.begin));
  }
  return texts;
}

const Conversation kTwo = {
    {"user", "a"}, {"assistant", " b\n"}, {"user", "c d"}, {"assistant", "e"}};

TEST(ChatTemplateTest, Render_TemplatesOfFamilies_IsWhatJinja2Says) {
  const Json expected = Json::parse(Data("expected.json"));
  std::set<std::string> templates;
  for (const Json& wanted : expected["cases"]) {
    const ChatTemplate chat = Open(wanted["template"]);
    templates.insert(wanted["template"].get<std::string>());
    const Conversation conversation =
        ConversationOf(expected["conversations"][wanted["conversation"].get<std::string>()]);
    const auto text = chat.Render(conversation, wanted["add_generation_prompt"]);
    if (wanted.contains("error")) {
      EXPECT_THAT(text.status().ToString(), HasSubstr(wanted["error"].get<std::string>()));
    } else {
      ASSERT_TRUE(text.ok()) << wanted << text.status();
      EXPECT_EQ(*text, wanted["text"].get<std::string>()) << wanted;
    }
  }
  EXPECT_EQ(templates.size(), 11u);
}

TEST(ChatTemplateTest, FindAnswers_EachFamily_AreContentAndEndToken) {
  EXPECT_THAT(AnswersOf(Open("llama3.jinja"), kTwo), ElementsAre("b<|eot_id|>", "e<|eot_id|>"));
  EXPECT_THAT(AnswersOf(Open("llama3_tools.jinja"), kTwo),
              ElementsAre("b<|eot_id|>", "e<|eot_id|>"));
  EXPECT_THAT(AnswersOf(Open("qwen2.jinja"), kTwo), ElementsAre(" b\n<|im_end|>", "e<|im_end|>"));
  EXPECT_THAT(AnswersOf(Open("qwen3.jinja"), kTwo),
              ElementsAre(" b\n<|im_end|>", "<think>\n\n</think>\n\ne<|im_end|>"));
  EXPECT_THAT(AnswersOf(Open("mistral.jinja"), kTwo), ElementsAre(" b\n</s>", "e</s>"));
  EXPECT_THAT(AnswersOf(Open("mistral_v3.jinja"), kTwo), ElementsAre("b</s>", "e</s>"));
  EXPECT_THAT(AnswersOf(Open("gemma.jinja"), kTwo),
              ElementsAre("b<end_of_turn>", "e<end_of_turn>"));
  EXPECT_THAT(AnswersOf(Open("phi3.jinja"), kTwo), ElementsAre(" b\n<|end|>", "e<|end|>"));
  EXPECT_THAT(AnswersOf(Open("zephyr.jinja"), kTwo), ElementsAre(" b\n</s>", "e</s>"));
  EXPECT_THAT(AnswersOf(Open("marked.jinja"), kTwo), ElementsAre(" b\n<|end|>", "e<|end|>"));
}

TEST(ChatTemplateTest, FindAnswers_SystemPromptBeforeTheLastQuestion_AreStillFound) {
  Conversation conversation = kTwo;
  conversation.insert(conversation.begin(), {"system", "s"});
  EXPECT_THAT(AnswersOf(Open("mistral_v3.jinja"), conversation), ElementsAre("b</s>", "e</s>"));
}

TEST(ChatTemplateTest, FindAnswers_EmptyOrEqualContents_AreFound) {
  const Conversation same = {{"user", "x"}, {"assistant", "x"}, {"user", "x"}, {"assistant", "x"}};
  EXPECT_THAT(AnswersOf(Open("qwen2.jinja"), same), ElementsAre("x<|im_end|>", "x<|im_end|>"));
  EXPECT_THAT(AnswersOf(Open("gemma.jinja"), same),
              ElementsAre("x<end_of_turn>", "x<end_of_turn>"));
  EXPECT_THAT(AnswersOf(Open("qwen2.jinja"), {{"user", "x"}, {"assistant", ""}}),
              ElementsAre("<|im_end|>"));
}

ChatTemplate Of(const std::string& text) {
  auto opened = ChatTemplate::FromFiles({{"chat_template.jinja", text}}, "dir");
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

TEST(ChatTemplateTest, FindAnswers_NotToBeTold_IsRefused) {
  EXPECT_THAT(
      Of("{% for m in messages %}{{ m.role }}{% endfor %}").FindAnswers(kTwo).status().message(),
      HasSubstr("message 2: the chat template does not print it"));
}

TEST(ChatTemplateTest, EndOfAnswer_EachFamily) {
  EXPECT_EQ(*Open("phi3.jinja").EndOfAnswer(), "<|end|>");
  EXPECT_EQ(*Open("qwen3.jinja").EndOfAnswer(), "<|im_end|>");
  EXPECT_EQ(*Open("zephyr.jinja").EndOfAnswer(), "</s>");
  EXPECT_EQ(*Of("{% for m in messages %}{{ m.content }} {% endfor %}").EndOfAnswer(), "");
}

TEST(ChatTemplateTest, FromFiles_WhereTheTemplateStands) {
  const auto text_of = [](const std::map<std::string, std::string>& files) {
    const auto opened = ChatTemplate::FromFiles(files, "dir");
    return opened.ok() ? *opened->Render(kTwo, false) : opened.status().ToString();
  };
  const std::string config = "tokenizer_config.json";
  EXPECT_EQ(text_of({{config, R"({"chat_template": "{{ messages[0].content }}"})"}}), "a");
  EXPECT_EQ(text_of({{config, R"({"chat_template": [{"name": "rag", "template": "x"},
                                 {"name": "default", "template": "y"}]})"}}),
            "y");
  EXPECT_EQ(text_of({{config, R"({"chat_template": "x"})"}, {"chat_template.jinja", "file"}}),
            "file");
  EXPECT_THAT(text_of({{config, R"({"chat_template": [{"name": "rag", "template": "x"}]})"}}),
              HasSubstr("nor a list with a template called \"default\""));
  EXPECT_THAT(text_of({{config, "{}"}}), HasSubstr("NOT_FOUND: dir/tokenizer_config.json"));
  EXPECT_THAT(text_of({}), HasSubstr("NOT_FOUND"));
  EXPECT_THAT(
      text_of({{config, R"({"chat_template": "a\n{% macro x() %}"})"}}),
      HasSubstr("dir/tokenizer_config.json: chat_template:2:4: {% macro %} is not supported"));
}

TEST(ChatTemplateTest, NamedTemplates_AllRows_RenderAndTellTheirAnswers) {
  for (const NamedTemplate& row : NamedTemplates()) {
    const ChatTemplate chat = Of(std::string(row.text));
    EXPECT_EQ(AnswersOf(chat, kTwo).size(), 2u) << row.name;
    EXPECT_NE(*chat.Render(kTwo, true), *chat.Render(kTwo, false)) << row.name;
  }
}

}  // namespace
}  // namespace hearth::chat
