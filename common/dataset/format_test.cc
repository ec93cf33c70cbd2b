#include "common/dataset/format.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;

DatasetInfo Example() {
  DatasetInfo info;
  info.name = "tiny";
  info.split = "train";
  info.tokenizer = {TokenizerKind::kSentencePiece, "tokenizer.model", 1000, 2};
  info.vocab = 1000;
  info.eos = 2;
  info.documents = 3;
  info.tokens = 30;
  info.shards = {{"shard-00000.bin", 20, "ab"}, {"shard-00001.bin", 10, ""}};
  return info;
}

TEST(ParseDatasetInfo_WrittenText_RoundTrips, AllFields) {
  const std::string text = ToJson(Example());
  const auto parsed = ParseDatasetInfo(text, "dataset.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(ToJson(*parsed), text);
  EXPECT_EQ(parsed->shards[1].tokens, 10);
  EXPECT_EQ(parsed->tokenizer.file, "tokenizer.model");
}

TEST(ParseTokenizerInfo, EveryKindThatMayBeRecorded_RoundTrips) {
  for (const tokenizer::TokenizerKindRow& row : tokenizer::kTokenizerKinds) {
    if (!row.recorded) {
      continue;
    }
    const TokenizerInfo info = {row.kind, std::string(row.file), 300, 2};
    const auto parsed = ParseTokenizerInfo(ToJson(info), "hearth_tokenizer.json");
    ASSERT_TRUE(parsed.ok()) << row.name << ": " << parsed.status();
    EXPECT_EQ(parsed->kind, row.kind) << row.name;
    EXPECT_EQ(parsed->file, row.file) << row.name;
    EXPECT_EQ(parsed->vocab, info.known() ? 300 : 0) << row.name;
  }
}

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text = ToJson(Example());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ParseDatasetInfo, BadField_NamesFileAndKey) {
  const struct {
    std::string text;
    const char* error;
  } cases[] = {
      {"{", "not JSON"},
      {"[]", "not a JSON object"},
      {Replaced("hearth-dataset", "x"), "format"},
      {Replaced("\"version\": 1", "\"version\": 9"), "reads version 1"},
      {Replaced("uint16", "float"), "dtype"},
      {Replaced("\"tokens\": 30", "\"tokens\": 31"), "the shards have 30"},
      {Replaced("\"tokens\": 20", "\"tokens\": -1"), "shards[0]: tokens"},
      {Replaced("shard-00000.bin", "../x"), "plain file name"},
      {Replaced("\"vocab\": 1000,\n  \"eos\"", "\"vocab\": \"many\",\n  \"eos\""),
       "vocab: must be an integer"},
      {Replaced("\"tokens\": 30", "\"tokens\": 18446744073709551615"), "at most"},
      {Replaced("sentencepiece", "magic"),
       "\"magic\" is not one of bytes, sentencepiece, bpe, none"},
      {Replaced("sentencepiece", "other"), "\"other\" is not one of bytes"},
  };
  for (const auto& c : cases) {
    const auto parsed = ParseDatasetInfo(c.text, "/d/dataset.json");
    ASSERT_TRUE(absl::IsInvalidArgument(parsed.status())) << c.error;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("/d/dataset.json"));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(c.error));
  }
}

TEST(ParseDatasetInfo, MutatedText_NeverCrashes) {
  std::mt19937 random(20240520);
  const std::string good = ToJson(Example());
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int i = 0; i < 3; ++i) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    if (round % 3 == 0) {
      text.resize(random() % text.size());
    }
    (void)ParseDatasetInfo(text, "f").ok();
  }
}

}  // namespace
}  // namespace hearth::dataset
