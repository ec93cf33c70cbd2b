#include "common/tokenizer/train.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tokenizer/bpe_tokenizer.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/pretokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/tokenizer_json.h"

namespace hearth::tokenizer {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// The merges by the plain definition: count all pairs again for each merge.
std::vector<std::string> PlainMerges(const std::string& text, size_t count) {
  std::map<std::string, int> pieces;
  PreTokenizer cutter;
  EXPECT_TRUE(cutter.AddPattern(Scanners()[1].pattern, /*use_scanner=*/false).ok());
  RegexScratch scratch;
  EXPECT_TRUE(
      cutter.Cut(text, &scratch, [&](std::string_view p) { ++pieces[std::string(p)]; }).ok());
  std::vector<std::pair<std::vector<std::string>, int>> words;
  for (const auto& [piece, n] : pieces) {
    std::vector<std::string> parts;
    for (const char c : piece) {
      parts.push_back(NameOfBytes(std::string(1, c)));
    }
    words.emplace_back(parts, n);
  }
  // Ids: bytes in the order of their characters, then merges.
  std::vector<std::string> order;
  for (int b = 0; b < 256; ++b) {
    order.push_back(NameOfBytes(std::string(1, static_cast<char>(b))));
  }
  std::sort(order.begin(), order.end());
  std::map<std::string, size_t> ids;
  for (const std::string& name : order) {
    ids.emplace(name, ids.size());
  }
  std::vector<std::string> merges;
  while (ids.size() < 256 + count) {
    std::map<std::pair<size_t, size_t>, int> pairs;
    for (const auto& [parts, n] : words) {
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        pairs[{ids[parts[i]], ids[parts[i + 1]]}] += n;
      }
    }
    auto best = pairs.begin();
    for (auto it = pairs.begin(); it != pairs.end(); ++it) {
      best = it->second > best->second ? it : best;
    }
    std::string left;
    std::string right;
    for (const auto& [name, id] : ids) {
      left = id == best->first.first ? name : left;
      right = id == best->first.second ? name : right;
    }
    merges.push_back(absl::StrCat(left, " ", right));
    ids.emplace(left + right, ids.size());
    for (auto& [parts, n] : words) {
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        if (parts[i] == left && parts[i + 1] == right) {
          parts[i] += right;
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
      }
    }
  }
  return merges;
}

TEST(TrainTest, RandomText_MergesOfThePlainDefinition) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    std::string text = "aaaa aaaaa abab ababab abcabc bcabc abc ";
    for (int i = 0; i < 3; ++i) {
      text += text;
    }
    text += RandomText(random, 3000);
    PieceCounts counts;
    counts.Add(text);
    const auto json = TrainBpe(counts, 256 + 120 + 1);
    ASSERT_TRUE(json.ok()) << json.status();
    EXPECT_EQ(Json::parse(*json)["model"]["merges"].get<std::vector<std::string>>(),
              PlainMerges(text, 120))
        << "seed " << seed;
  }
}

TEST(TrainTest, AnySharing_SameBytes) {
  std::mt19937 random(5);
  PieceCounts whole;
  PieceCounts parts[3];
  for (int i = 0; i < 30; ++i) {
    const std::string text = RandomText(random, 300);
    whole.Add(text);
    parts[random() % 3].Add(text);
  }
  PieceCounts sum;
  for (const int i : {2, 0, 1}) {
    sum.Add(parts[i]);
  }
  EXPECT_EQ(*TrainBpe(whole, 400), *TrainBpe(sum, 400));
}

TEST(TrainTest, TrainedFile_EncodesAndComesBack) {
  std::mt19937 random(6);
  const std::string text = RandomText(random, 5000);
  PieceCounts counts;
  counts.Add(text);
  const auto json = TrainBpe(counts, 500);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto tokenizer = BpeTokenizer::Parse(*json, "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab(), 500);
  EXPECT_EQ((*tokenizer)->IdOf(kEndOfText), 499);
  const auto tokens = (*tokenizer)->Encode(text, BpeTokenizer::SpecialTokens::kNone);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_LT(tokens->size(), text.size() * 3 / 4);
  EXPECT_EQ(*(*tokenizer)->Decode(*tokens), text);
  EXPECT_EQ(*ConfigToken(TrainedTokenizerConfig(), "eos_token", "f"), kEndOfText);
}

TEST(TrainTest, TooLittleText_SaysWhatItGives) {
  PieceCounts counts;
  counts.Add("abab abab");
  EXPECT_THAT(std::string(TrainBpe(counts, 1000).status().message()), HasSubstr("at most"));
  EXPECT_FALSE(TrainBpe(counts, 256).ok());
  EXPECT_TRUE(TrainBpe(counts, 257).ok());
}

}  // namespace
}  // namespace hearth::tokenizer
