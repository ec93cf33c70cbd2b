// Files and texts that somebody made to break the reader: an error with the place, never a crash.
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "common/tokenizer/bpe_tokenizer.h"
#include "common/tokenizer/checked_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/tokenizer_json.h"

namespace hearth::tokenizer {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;
using Special = BpeTokenizer::SpecialTokens;

absl::Status ParseText(const std::string& text) {
  return BpeTokenizer::Parse(text, "dir/tokenizer.json").status();
}

struct BadFile {
  const char* error;
  std::function<void(Json&)> spoil;
};

Json Split(const char* pattern) {
  return SplitJson(pattern);
}

const std::vector<BadFile>& BadModels() {
  static const auto& files = *new std::vector<BadFile>{
      {"model.vocab[\"\"]: a token must not be empty",
       [](Json& j) { j["model"]["vocab"][""] = 300; }},
      {"model.vocab[\"zz\"]: two tokens have the id 65",
       [](Json& j) { j["model"]["vocab"]["zz"] = 65; }},
      {"model.vocab[\"zz\"]: must be an integer", [](Json& j) { j["model"]["vocab"]["zz"] = -1; }},
      {"model.vocab[\"zz\"]: must be an integer",
       [](Json& j) { j["model"]["vocab"]["zz"] = 4294967296; }},
      {"model.vocab: a vocabulary without a token for byte 97",
       [](Json& j) {
         j["model"]["vocab"].erase("a");
         j["model"]["merges"].clear();
       }},
      {"model.merges[1]: \"q\xc3\xa9q\" is not in model.vocab",
       [](Json& j) { j["model"]["merges"][1] = "q\xc3\xa9q a"; }},
      {"model.merges[1]: must be two parts", [](Json& j) { j["model"]["merges"][1] = "ab"; }},
      {"model.merges[1]: must be two parts", [](Json& j) { j["model"]["merges"][1] = "a b c"; }},
      {"model.merges[1]: \"\" is not in model.vocab",
       [](Json& j) { j["model"]["merges"][1] = " a"; }},
      {"model.merges[1]: the same merge stands above",
       [](Json& j) { j["model"]["merges"][1] = j["model"]["merges"][0]; }},
      {"model.merges[2]: must be a string", [](Json& j) { j["model"]["merges"][2] = 7; }},
      {"model.dropout: 0.1 is not supported", [](Json& j) { j["model"]["dropout"] = 0.1; }},
      {"model: type \"Unigram\" is not supported", [](Json& j) { j["model"]["type"] = "Unigram"; }},
      {"model: \"vocabulary\" is not supported", [](Json& j) { j["model"]["vocabulary"] = 1; }},
      {"truncation: a value other than null", [](Json& j) { j["truncation"] = Json::object(); }},
      {"\"extra\" is not supported", [](Json& j) { j["extra"] = 1; }},
  };
  return files;
}

const std::vector<BadFile>& BadPipelines() {
  static const auto& files = *new std::vector<BadFile>{
      {"normalizer: type \"NFKC\"",
       [](Json& j) {
         j["normalizer"] = {{"type", "NFKC"}};
       }},
      {"normalizer.normalizers[1]: type \"Lowercase\"",
       [](Json& j) {
         j["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
       }},
      {"pre_tokenizer: type \"Metaspace\"",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {"pre_tokenizer: a tokenizer without ByteLevel",
       [](Json& j) { j["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer.pretokenizers[0].behavior: \"Removed\"",
       [](Json& j) {
         j["pre_tokenizer"] = Split(" ");
         j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
       }},
      {"\"\\w\" at byte 0", [](Json& j) { j["pre_tokenizer"] = Split("\\w+"); }},
      {"\"$\" at byte 1", [](Json& j) { j["pre_tokenizer"] = Split("a$"); }},
      {"\"}+\"", [](Json& j) { j["pre_tokenizer"] = Split("a{1,3}+"); }},
      {"matches the empty string", [](Json& j) { j["pre_tokenizer"] = Split("a*"); }},
      {"at byte 2 of", [](Json& j) { j["pre_tokenizer"] = Split("(a"); }},
      {"\"(*\"", [](Json& j) { j["pre_tokenizer"] = Split("(*NO_JIT)a"); }},
      {"\"(?R\"", [](Json& j) { j["pre_tokenizer"] = Split("(?R)"); }},
      {"decoder: type \"WordPiece\"",
       [](Json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       }},
      {"post_processor: type \"BertProcessing\"",
       [](Json& j) {
         j["post_processor"] = {{"type", "BertProcessing"}};
       }},
      {"added_tokens[0]: two tokens have the id 5",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 5}, {"content", "<x>"}}};
       }},
      {"added_tokens[0]: \"a\" has the id",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 900}, {"content", "a"}}};
       }},
      {"added_tokens[0].content: must not be empty",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 900}, {"content", ""}}};
       }},
      {"added_tokens[0]: \"regex\"",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 900}, {"content", "x"}, {"regex", true}}};
       }},
  };
  return files;
}

void ExpectRefused(const std::vector<BadFile>& files) {
  const Json good = TestTokenizer(20).Json(ByteLevelJson());
  ASSERT_TRUE(ParseText(good.dump()).ok()) << ParseText(good.dump());
  for (const BadFile& bad : files) {
    Json json = good;
    bad.spoil(json);
    const absl::Status status = ParseText(json.dump());
    EXPECT_FALSE(status.ok()) << bad.error;
    EXPECT_THAT(std::string(status.message()), StartsWith("dir/tokenizer.json: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.error));
  }
}

TEST(HostileTokenizerTest, BadModels_ErrorWithFileAndPlace) {
  ExpectRefused(BadModels());
}

TEST(HostileTokenizerTest, BadPipelines_ErrorWithFileAndPlace) {
  ExpectRefused(BadPipelines());
}

// A merge whose result is one of its parts would never end.
TEST(HostileTokenizerTest, CyclicMerges_AreRefused) {
  Json json = TestTokenizer(20).Json(ByteLevelJson());
  for (const char* merge : {"a ", " a", " "}) {
    Json cyclic = json;
    cyclic["model"]["merges"][0] = merge;
    const absl::Status status = ParseText(cyclic.dump());
    EXPECT_FALSE(status.ok()) << merge;
    EXPECT_THAT(std::string(status.message()), HasSubstr("model.merges[0]: \"")) << merge;
    cyclic["model"]["vocab"][""] = 900;
    EXPECT_THAT(std::string(ParseText(cyclic.dump()).message()),
                HasSubstr("a token must not be empty"));
  }
}

TEST(HostileTokenizerTest, NotJson_ErrorWithByte) {
  EXPECT_THAT(std::string(ParseText("{\"model\": ").message()), HasSubstr(": not JSON"));
  EXPECT_THAT(std::string(ParseText("{\"a\": \"\xff\"}").message()), HasSubstr("byte 7 is not"));
  EXPECT_THAT(std::string(ParseText(std::string(1'000'000, '[')).message()),
              HasSubstr("byte 64: nested deeper than 64"));
  EXPECT_THAT(std::string(ParseText("[1]").message()), HasSubstr("must be an object"));
  EXPECT_FALSE(ParseText("").ok());
  EXPECT_FALSE(ParseText("{\"model\": 1e999}").ok());
}

TEST(HostileTokenizerTest, CatastrophicExpression_ErrorNotHours) {
  const Json json = TestTokenizer(0).Json(SplitJson("(?:a+)+[bd]"));
  const auto tokenizer = BpeTokenizer::Parse(json.dump(), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto tokens = (*tokenizer)->Encode(std::string(200, 'a') + "c", Special::kNone);
  EXPECT_TRUE(absl::IsResourceExhausted(tokens.status())) << tokens.status();
  EXPECT_THAT(std::string(tokens.status().message()), HasSubstr("at byte 0"));
}

TEST(HostileTokenizerTest, Texts_BadUtf8IsNamed_LongOnesPass) {
  const TestTokenizer plain(50);
  const auto tokenizer =
      BpeTokenizer::Parse(plain.Json(SplitJson("[^x]+|x")).dump(), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(std::string((*tokenizer)->Encode("abc\xff", Special::kNone).status().message()),
              HasSubstr("byte 3 of the text is not UTF-8"));
  const std::string one_piece(3'000'000, 'e');
  const auto tokens = (*tokenizer)->Encode(one_piece, Special::kNone);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*(*tokenizer)->Decode(*tokens), one_piece);
  EXPECT_TRUE((*tokenizer)->Encode("", Special::kNone)->empty());
  EXPECT_FALSE((*tokenizer)->Decode({100000}).ok());
  EXPECT_FALSE((*tokenizer)->Decode({-1}).ok());
}

// Bytes of good files are changed, cut out and doubled at random. Each result is refused or works.
TEST(HostileTokenizerTest, RandomMutations_NeverCrash) {
  Json json = TestTokenizer(10).Json(SplitJson(Scanners()[1].pattern));
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"] = {{{"id", 300}, {"content", "<x>"}, {"lstrip", true}}};
  const std::string good = json.dump();
  const std::string marks = "{}[]\",:0129-\\eu *+?(|)^\xc3\xff";
  int accepted = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::string text = good;
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      const size_t length = std::min<size_t>(1 + random() % 12, text.size() - at);
      switch (random() % 3) {
        case 0:
          text[at] = marks[random() % marks.size()];
          break;
        case 1:
          text.erase(at, length);
          break;
        default:
          text.insert(at, text.substr(at, length));
      }
    }
    const auto tokenizer = BpeTokenizer::Parse(text, "tokenizer.json");
    if (!tokenizer.ok()) {
      EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer.json"));
      continue;
    }
    ++accepted;
    const auto tokens = (*tokenizer)->Encode(RandomText(random, 50) + "<x>", Special::kAdd);
    if (tokens.ok()) {
      EXPECT_TRUE((*tokenizer)->Decode(*tokens).ok());
    }
  }
  EXPECT_GT(accepted, 10);  // some changes are harmless
}

}  // namespace
}  // namespace hearth::tokenizer
