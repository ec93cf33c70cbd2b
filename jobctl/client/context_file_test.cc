#include "jobctl/client/context_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::jobctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ContextFile Parsed(const std::string& text) {
  auto file = ContextFile::Parse("/c.json", text);
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

TEST(ContextFile, Nothing_HasNoContexts) {
  const ContextFile file = Parsed("");
  EXPECT_EQ(file.current(), "");
  EXPECT_THAT(file.names(), IsEmpty());
  EXPECT_EQ(file.Get("lab").status().message(),
            "/c.json has no context \"lab\"; jobctl context add NAME --coordinator HOST:PORT adds "
            "one");
}

TEST(ContextFile, Set_TheFirstIsUsed_AndOtherKeysStay) {
  ContextFile file = Parsed(R"({"coordinator": "old:1", "kept": [1]})");
  ASSERT_TRUE(file.Set("lab", {{"coordinator", "lab:7070"}}).ok());
  ASSERT_TRUE(file.Set("home", {{"coordinator", "home:7070"}}).ok());
  ASSERT_TRUE(file.Set("home", {{"coordinator", "home:1"}}).ok());
  const ContextFile again = Parsed(file.Text());
  EXPECT_EQ(again.current(), "lab");
  EXPECT_THAT(again.names(), ElementsAre("home", "lab"));
  EXPECT_EQ(again.Get("home")->at("coordinator"), "home:1");
  EXPECT_EQ(again.defaults().at("coordinator"), "old:1");
  EXPECT_EQ(again.defaults().at("kept"), nlohmann::json::array({1}));
}

TEST(ContextFile, UseAndRemove_KnownNamesOnly) {
  ContextFile file = Parsed(R"({"current": "a", "contexts": {"a": {}, "b": {}}})");
  EXPECT_TRUE(file.Use("b").ok());
  EXPECT_EQ(file.current(), "b");
  EXPECT_TRUE(file.Remove("b").ok());
  EXPECT_EQ(file.current(), "");
  const absl::Status absent = file.Use("b");
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("there are: a"));
  EXPECT_EQ(file.Remove("b").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(file.names(), ElementsAre("a"));
}

TEST(ContextFile, BadNames_AreRefused) {
  ContextFile file = Parsed("");
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("-a"),
                                 std::string("a/b"), std::string(64, 'a')}) {
    EXPECT_EQ(file.Set(bad, {}).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_TRUE(file.Set("Lab_2.x-y", nlohmann::json::object()).ok());
}

TEST(ContextFile, WrongTypes_NameTheKey) {
  for (const auto& [text, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"[1]", "/c.json is not a JSON object"},
           {R"({"current": 3})", R"(/c.json: "current" is 3, not a text in quotes)"},
           {R"({"contexts": []})", R"(/c.json: "contexts" is not an object of objects)"},
           {R"({"contexts": {"a": "b"}})", R"(/c.json: "contexts" is not an object of objects)"}}) {
    const absl::Status refused = ContextFile::Parse("/c.json", text).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace hearth::jobctl
