#include "common/tokenizer/bpe_tokenizer.h"

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/system.h"
#include "common/tokenizer/scanner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/tokenizer_json.h"

namespace hearth::tokenizer {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;
using Special = BpeTokenizer::SpecialTokens;

std::unique_ptr<BpeTokenizer> Parse(const Json& json) {
  auto tokenizer = BpeTokenizer::Parse(json.dump(), "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::vector<int32_t> Encode(const BpeTokenizer& tokenizer,
                            std::string_view text,
                            Special special = Special::kNone) {
  auto tokens = tokenizer.Encode(text, special);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return tokens.ok() ? *std::move(tokens) : std::vector<int32_t>();
}

Json Added(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

std::string Data(const std::string& name) {
  std::ifstream file(std::string(GetEnv("HEARTH_SOURCE_DIR")) + "/common/tokenizer/testdata/" +
                     name);
  EXPECT_TRUE(file.good()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The plain definition over the pieces of PCRE2.
std::vector<int32_t> Reference(const TestTokenizer& plain,
                               std::string_view pattern,
                               std::string_view text) {
  PreTokenizer cutter;
  EXPECT_TRUE(cutter.AddPattern(pattern, /*use_scanner=*/false).ok());
  RegexScratch scratch;
  std::vector<int32_t> tokens;
  EXPECT_TRUE(cutter
                  .Cut(text, &scratch,
                       [&](std::string_view piece) {
                         const auto some = plain.Encode(std::string(piece));
                         tokens.insert(tokens.end(), some.begin(), some.end());
                       })
                  .ok());
  return tokens;
}

// Files and tokens of Hugging Face's library; testdata/README.md says which.
TEST(BpeTokenizerTest, Encode_FilesOfThreeStyles_IsWhatTheLibraryRecorded) {
  const Json sample = Json::parse(Data("sample.json"));
  const auto text = sample["text"].get<std::string>();
  ASSERT_EQ(sample["tokens"].size(), 3U);
  for (const auto& [style, tokens] : sample["tokens"].items()) {
    const auto tokenizer = Parse(Json::parse(Data(style + ".json")));
    ASSERT_NE(tokenizer, nullptr) << style;
    EXPECT_EQ(Encode(*tokenizer, text), tokens.get<std::vector<int32_t>>()) << style;
  }
}

TEST(BpeTokenizerTest, Encode_RandomTextAndMerges_EqualsThePlainDefinition) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const TestTokenizer plain(300, seed);
    const ScannerRow& row = Scanners()[seed % Scanners().size()];
    const auto tokenizer = Parse(plain.Json(SplitJson(row.pattern)));
    ASSERT_NE(tokenizer, nullptr);
    std::mt19937 random(seed);
    for (int k = 0; k < 20; ++k) {
      const std::string text = RandomText(random, 200);
      const auto tokens = Encode(*tokenizer, text);
      ASSERT_EQ(tokens, Reference(plain, row.pattern, text)) << "seed " << seed;
      ASSERT_EQ(*tokenizer->Decode(tokens), text);
    }
  }
}

// Longer than the limit above which a heap chooses the merges, and with many equal merges.
TEST(BpeTokenizerTest, Encode_LongPieces_EqualsThePlainDefinition) {
  const TestTokenizer plain(400, 7);
  const auto tokenizer = Parse(plain.Json(ByteLevelJson()));
  std::mt19937 random(7);
  for (const size_t length : {47u, 48u, 49u, 50u, 200u, 1000u}) {
    std::string word;
    while (word.size() < length) {
      word.push_back("eeetaoins"[random() % 9]);
    }
    EXPECT_EQ(Encode(*tokenizer, word), plain.Encode(word)) << length;
    EXPECT_EQ(Encode(*tokenizer, std::string(length, 'e')), plain.Encode(std::string(length, 'e')));
  }
}

TEST(BpeTokenizerTest, Encode_MergesAsLists_SameTokens) {
  const TestTokenizer plain(100);
  Json json = plain.Json(ByteLevelJson());
  const auto lines = Parse(json);
  for (Json& merge : json["model"]["merges"]) {
    const std::string line = merge.get<std::string>();
    const size_t space = line.find(' ');
    merge = Json::array({line.substr(0, space), line.substr(space + 1)});
  }
  const auto lists = Parse(json);
  std::mt19937 random(3);
  const std::string text = RandomText(random, 2000);
  EXPECT_EQ(Encode(*lines, text), Encode(*lists, text));
}

TEST(BpeTokenizerTest, Encode_IgnoreMerges_WholePieceIsOneToken) {
  TestTokenizer plain(0);
  plain.tokens.push_back("abc");  // no merge leads to it
  Json json = plain.Json(ByteLevelJson());
  EXPECT_THAT(Encode(*Parse(json), "abc abc"), ElementsAre('a', 'b', 'c', ' ', 'a', 'b', 'c'));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(Encode(*Parse(json), "abc abc"), ElementsAre(256, ' ', 'a', 'b', 'c'));
}

TEST(BpeTokenizerTest, Encode_AddedTokens_LeftmostThenLongest) {
  Json json = TestTokenizer(0).Json(ByteLevelJson());
  json["added_tokens"] = {Added(256, "<|a|>"), Added(257, "<|a|>b"), Added(258, "<|")};
  const auto tokenizer = Parse(json);
  EXPECT_THAT(Encode(*tokenizer, "x<|a|>b<|a|>c<|"), ElementsAre('x', 257, 256, 'c', 258));
  EXPECT_EQ(*tokenizer->Decode(Encode(*tokenizer, "x<|a|>b<|a|>c<|")), "x<|a|>b<|a|>c<|");
  EXPECT_EQ(tokenizer->IdOf("<|a|>"), 256);
  EXPECT_EQ(tokenizer->IdOf("<|c|>"), -1);
}

TEST(BpeTokenizerTest, Encode_StrippingTokens_TakeWhiteSpace) {
  Json json = TestTokenizer(0).Json(ByteLevelJson());
  json["added_tokens"] = {Added(256, "<l>"), Added(257, "<r>"), Added(258, "<w>")};
  json["added_tokens"][0]["lstrip"] = true;
  json["added_tokens"][1]["rstrip"] = true;
  json["added_tokens"][2]["single_word"] = true;
  const auto tokenizer = Parse(json);
  EXPECT_THAT(Encode(*tokenizer, "a \n<l> b"), ElementsAre('a', 256, ' ', 'b'));
  EXPECT_THAT(Encode(*tokenizer, "a <r>\t\xe3\x80\x80 b"), ElementsAre('a', ' ', 257, 'b'));
  EXPECT_THAT(Encode(*tokenizer, "<r> <l>"), ElementsAre(257, 256));
  EXPECT_THAT(Encode(*tokenizer, "<w> <w>"), ElementsAre(258, ' ', 258));
  EXPECT_THAT(Encode(*tokenizer, "a<w>"), ElementsAre('a', '<', 'w', '>'));
  EXPECT_THAT(Encode(*tokenizer, "<w>\xc3\xa9"), ElementsAre('<', 'w', '>', 0xc3, 0xa9));
}

TEST(BpeTokenizerTest, Encode_Nfc_NormalisesTextButNotRawTokens) {
  Json json = TestTokenizer(0).Json(ByteLevelJson());
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  json["added_tokens"] = {Added(256, "e\xcc\x81!"), Added(257, "e\xcc\x81?")};
  json["added_tokens"][1]["normalized"] = true;  // so it is found as U+00E9 ?
  const auto tokenizer = Parse(json);
  EXPECT_THAT(Encode(*tokenizer, "e\xcc\x81"), ElementsAre(0xc3, 0xa9));
  EXPECT_THAT(Encode(*tokenizer, "e\xcc\x81!"), ElementsAre(256));
  EXPECT_THAT(Encode(*tokenizer, "\xc3\xa9!"), ElementsAre(0xc3, 0xa9, '!'));
  EXPECT_THAT(Encode(*tokenizer, "e\xcc\x81?\xc3\xa9?"), ElementsAre(257, 257));
}

TEST(BpeTokenizerTest, Encode_Template_AroundTheText) {
  Json json = TestTokenizer(0).Json(ByteLevelJson());
  json["added_tokens"] = {Added(256, "<bos>"), Added(257, "<eos>")};
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
        {{"SpecialToken", {{"id", "<eos>"}, {"type_id", 0}}}}}},
      {"pair", Json::array()},
      {"special_tokens",
       {{"<bos>", {{"id", "<bos>"}, {"ids", {256}}, {"tokens", {"<bos>"}}}},
        {"<eos>", {{"id", "<eos>"}, {"ids", {257}}, {"tokens", {"<eos>"}}}}}}};
  const auto tokenizer = Parse(json);
  EXPECT_TRUE(tokenizer->has_template());
  EXPECT_THAT(Encode(*tokenizer, "a"), ElementsAre('a'));
  EXPECT_THAT(Encode(*tokenizer, "a", Special::kAdd), ElementsAre(256, 'a', 257));
}

TEST(BpeTokenizerTest, Encode_PrefixSpaceAndDigits_AsTheFileSays) {
  Json level = ByteLevelJson();
  level["add_prefix_space"] = true;
  EXPECT_THAT(Encode(*Parse(TestTokenizer(0).Json(level)), "a"), ElementsAre(' ', 'a'));
  TestTokenizer plain(0);
  plain.tokens.push_back("12");
  plain.merges.emplace_back("1", "2");
  Json digits = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, ByteLevelJson()}}};
  EXPECT_THAT(Encode(*Parse(plain.Json(digits)), "12"), ElementsAre('1', '2'));
  digits["pretokenizers"][0]["individual_digits"] = false;
  EXPECT_THAT(Encode(*Parse(plain.Json(digits)), "12"), ElementsAre(256));
}

TEST(BpeTokenizerTest, Encode_ManyThreads_SameTokens) {
  const TestTokenizer plain(300);
  const auto tokenizer = Parse(plain.Json(SplitJson(Scanners()[1].pattern)));
  std::mt19937 random(11);
  const std::string text = RandomText(random, 20000);
  const auto want = Encode(*tokenizer, text);
  std::vector<std::vector<int32_t>> got(4);
  std::vector<std::thread> threads;
  for (auto& tokens : got) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        tokens = *tokenizer->Encode(text, Special::kNone);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& tokens : got) {
    EXPECT_EQ(tokens, want);
  }
}

TEST(BpeTokenizerTest, ConfigToken_StringOrObject_ItsContent) {
  EXPECT_EQ(*ConfigToken(R"({"eos_token": "</s>"})", "eos_token", "f"), "</s>");
  EXPECT_EQ(*ConfigToken(R"({"eos_token": {"content": "<e>"}})", "eos_token", "f"), "<e>");
  EXPECT_EQ(*ConfigToken(R"({"bos_token": null})", "eos_token", "f"), "");
  EXPECT_FALSE(ConfigToken(R"({"eos_token": 3})", "eos_token", "f").ok());
}

}  // namespace
}  // namespace hearth::tokenizer
