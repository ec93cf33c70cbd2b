#include "common/tokenizer/scanner.h"

#include <random>
#include <string>
#include <vector>

#include "common/tokenizer/pretokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/tokenizer_json.h"

namespace hearth::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Cut(std::string_view pattern, std::string_view text, bool use_scanner) {
  PreTokenizer cutter;
  const absl::Status added = cutter.AddPattern(pattern, use_scanner);
  EXPECT_TRUE(added.ok()) << added;
  RegexScratch scratch;
  std::vector<std::string> pieces;
  const absl::Status status =
      cutter.Cut(text, &scratch, [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

TEST(ScannerTest, RandomUnicode_CutsLikePcre2) {
  for (const ScannerRow& row : Scanners()) {
    for (uint32_t seed = 0; seed < 400; ++seed) {
      std::mt19937 random(seed);
      const std::string text = RandomText(random, 1 + random() % 300);
      ASSERT_EQ(Cut(row.pattern, text, true), Cut(row.pattern, text, false))
          << row.name << ", seed " << seed;
    }
  }
}

// All strings of up to 5 characters out of one of each class and those that contractions test.
TEST(ScannerTest, AllShortTexts_CutLikePcre2) {
  const std::vector<std::string> alphabet = {"l", "S", "1", " ", "\n", "\t", "'", ".", "\xc5\xbf"};
  for (const ScannerRow& row : Scanners()) {
    PreTokenizer scanner;
    PreTokenizer regex;
    ASSERT_TRUE(scanner.AddPattern(row.pattern).ok());
    ASSERT_TRUE(regex.AddPattern(row.pattern, /*use_scanner=*/false).ok());
    RegexScratch scratch;
    size_t count = 1;
    for (int length = 1; length <= 5; ++length) {
      count *= alphabet.size();
      for (size_t n = 0; n < count; ++n) {
        std::string text;
        for (size_t k = 0, rest = n; k < static_cast<size_t>(length);
             ++k, rest /= alphabet.size()) {
          text += alphabet[rest % alphabet.size()];
        }
        std::string ours;
        std::string theirs;
        const auto append = [](std::string* to) {
          return [to](std::string_view piece) { to->append(piece).append("\1"); };
        };
        ASSERT_TRUE(scanner.Cut(text, &scratch, append(&ours)).ok());
        ASSERT_TRUE(regex.Cut(text, &scratch, append(&theirs)).ok());
        ASSERT_EQ(ours, theirs) << row.name << ": " << text;
      }
    }
  }
}

TEST(ScannerTest, Gpt2_EnglishText_PiecesOfThePaper) {
  EXPECT_THAT(Cut(Scanners()[0].pattern, "I'm here,  it's 2024!\n\nYou'LL", true),
              ElementsAre("I", "'m", " here", ",", " ", " it", "'s", " 2024", "!", "\n", "\n",
                          "You", "'", "LL"));
}

TEST(ScannerTest, Llama3_EnglishText_ThreeDigitsAndLines) {
  EXPECT_THAT(Cut(Scanners()[1].pattern, "(x) 12345 you'LL\n\n  end  ", true),
              ElementsAre("(x", ")", " ", "123", "45", " you", "'LL", "\n\n", " ", " end", "  "));
}

TEST(ScannerTest, Qwen2_Digits_StandAlone) {
  EXPECT_THAT(Cut(Scanners()[2].pattern, "a 12", true), ElementsAre("a", " ", "1", "2"));
}

TEST(PreTokenizerTest, Sequence_CutsInsidePieces) {
  PreTokenizer cutter;
  ASSERT_TRUE(cutter.AddLiteral("ab").ok());
  ASSERT_TRUE(cutter.AddDigits(/*individual=*/true).ok());
  RegexScratch scratch;
  std::vector<std::string> pieces;
  ASSERT_TRUE(
      cutter.Cut("xab12y", &scratch, [&](std::string_view piece) { pieces.emplace_back(piece); })
          .ok());
  EXPECT_THAT(pieces, ElementsAre("x", "ab", "1", "2", "y"));
}

}  // namespace
}  // namespace hearth::tokenizer
