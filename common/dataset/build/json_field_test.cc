#include "common/dataset/build/json_field.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hearth::dataset {
namespace {

// What FindJsonString makes of a line; "<none>" if it leaves it to a complete parser.
std::string Find(const std::string& line, std::string_view field) {
  // A copy without a byte to spare: a sanitizer sees what is read behind it.
  const std::vector<char> exact(line.begin(), line.end());
  ByteBuffer scratch;
  return std::string(
      FindJsonString({exact.data(), exact.size()}, field, &scratch).value_or("<none>"));
}

TEST(FindJsonString, Field_IsFound) {
  const struct {
    std::string line;
    std::string field;
    std::string text;
  } rows[] = {
      {R"({"text":"a"})", "text", "a"},
      {R"( { "id" : 1 , "text" : "a" } )", "text", "a"},
      {R"({"text":""})", "text", ""},
      {R"({"more":{"text":"no"},"text":"yes"})", "text", "yes"},
      {R"({"list":[1,-2.5e+10,[],{},[{"text":null}],true,false],"text":"a"})", "text", "a"},
      {R"({"meta":{"id":0,"text":"deep"},"text":"no"})", "meta.text", "deep"},
      {R"({"a":{"b":{"c":"deep"}}})", "a.b.c", "deep"},
      {R"({"a.b":"whole"})", "a.b", "whole"},
      {R"({"x":"\u0041","text":"\u00e9\u4e2d\ud83d\ude00\n\t\"\\\/\b\f\r"})", "text",
       "é中😀\n\t\"\\/\b\f\r"},
      {R"({"text":"é中😀 and more than sixteen bytes, \n then \\ and the end"})", "text",
       "é中😀 and more than sixteen bytes, \n then \\ and the end"},
      {"{\"text\":\"\x7f\"}", "text", "\x7f"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(Find(row.line, row.field), row.text) << row.line;
  }
}

TEST(FindJsonString, WhatIsRareOrWrong_IsLeftToACompleteParser) {
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  const std::vector<std::string> lines = {
      "",
      "[]",
      "{}",
      R"({"text":3})",
      R"({"text":"a"}x)",
      R"({"text":"a",})",
      R"({"text":"a" "b":1})",
      R"({"text":"a","text":"b"})",
      R"({"te\u0078t":"a"})",
      R"({"text":"a","\u0074ext":"b"})",
      R"({"text":"\u0000"})",
      R"({"text":"\ud800"})",
      R"({"text":"\udc00"})",
      R"({"text":"\ud800\u0041"})",
      R"({"text":"\x"})",
      R"({"text":"\u12g4"})",
      R"({"text":"\u12)",
      R"({"text":"a)",
      "{\"text\":\"a\nb\"}",
      "{\"text\":\"a long enough text and then a control \x01 character\"}",
      "{\"text\":\"\xff\"}",
      "{\"text\":\"\xc0\x80\"}",
      "{\"text\":\"\xe0\x80\x80\"}",
      "{\"text\":\"\xed\xa0\x80\"}",
      "{\"text\":\"\xf0\x80\x80\x80\"}",
      "{\"text\":\"\xf4\x90\x80\x80\"}",
      "{\"text\":\"\xe4\xb8\"}",
      "{\"other\":\"\xff\",\"text\":\"a\"}",
      R"({"n":01,"text":"a"})",
      R"({"n":1.,"text":"a"})",
      R"({"n":1e999,"text":"a"})",
      R"({"n":+1,"text":"a"})",
      R"({"n":nul,"text":"a"})",
      R"({"n":,"text":"a"})",
      R"({"deep":)" + deep + R"(,"text":"a"})",
      "\xef\xbb\xbf{\"text\":\"a\"}",
      std::string("{\"text\":\"a\"}\0", 13),
  };
  for (const std::string& line : lines) {
    EXPECT_EQ(Find(line, "text"), "<none>") << line;
  }
  EXPECT_EQ(Find(R"({"a":{"b":"c"},"a":{}})", "a.b"), "<none>");
  EXPECT_EQ(Find(R"({"a":{"b":"c"},"a.b":"d"})", "a.b"), "<none>");
  EXPECT_EQ(Find(R"({"a":"c"})", "a.b"), "<none>");
}

// Changes bytes of good lines in many ways: what is found must be what nlohmann::json finds.
TEST(FindJsonString, AnyLine_SameAsTheCompleteParser) {
  const std::string lines[] = {
      R"({"id":17,"text":"one \"two\" \u00e9\ud83d\ude00 three","url":"a\\b"})",
      R"({"a":[1,2.5e-3,null,{"text":"in"}],"text":"é中😀 the end of a longer text","z":false})",
      R"({ "text" : "\n\t\r" , "n" : -0.0 , "deep" : {"deep":{"text":"x"}} })",
  };
  const std::string bytes = "\"\\{}[]:,u0eE+-.dD8 \n\x01\x7f\xc3\xa9\xed\xf4t";
  uint64_t random = 1;
  const auto below = [&random](size_t n) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(random >> 33) % n;
  };
  int found = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string line = lines[below(3)];
    for (size_t k = below(4); k > 0; --k) {
      const size_t at = below(line.size());
      switch (below(3)) {
        case 0:
          line[at] = bytes[below(bytes.size())];
          break;
        case 1:
          line.insert(at, 1, bytes[below(bytes.size())]);
          break;
        default:
          line.erase(at, 1);
      }
    }
    const std::string text = Find(line, "text");
    if (text == "<none>") {
      continue;
    }
    ++found;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << line;
    ASSERT_EQ(json.value("text", "<missing>"), text) << line;
  }
  EXPECT_GT(found, 20'000);
}

}  // namespace
}  // namespace hearth::dataset
