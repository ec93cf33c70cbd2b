#include "worker/trainer/generate/text_stream.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

// The pieces of `text` that come out when its bytes go in one by one; the last is what Finish adds.
std::vector<std::string> Pieces(const std::string& text, std::vector<std::string> stops = {}) {
  const auto tokenizer = dataset::NewBytesTokenizer();
  TextStream stream(*tokenizer, {}, std::move(stops));
  std::vector<std::string> pieces;
  for (const char byte : text) {
    pieces.push_back(*stream.Add(static_cast<uint8_t>(byte)));
  }
  pieces.push_back(*stream.Finish());
  return pieces;
}

using List = std::vector<std::string>;

TEST(TextStream, Letters_GoOutAtOnce) {
  EXPECT_EQ(Pieces("ab"), (List{"a", "b", ""}));
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "word " + std::to_string(i) + " ";
  }
  std::string all;
  for (const std::string& piece : Pieces(text)) {
    all += piece;
  }
  EXPECT_EQ(all, text) << "nothing is lost when the window moves";
}

TEST(TextStream, Character_WaitsForItsLastByte) {
  EXPECT_EQ(Pieces("\xC3\xA4x"), (List{"", "\xC3\xA4", "x", ""}));
  EXPECT_EQ(Pieces("\xF0\x9F\x98\x80"), (List{"", "", "", "\xF0\x9F\x98\x80", ""}));
  EXPECT_EQ(Pieces("a\xE2\x82"), (List{"a", "", "", "\xE2\x82"})) << "never completed";
  EXPECT_EQ(Pieces("\x80z"), (List{"\x80", "z", ""})) << "no beginning of a character";
}

TEST(TextStream, BeginningOfAStopString_IsHeldBack) {
  EXPECT_EQ(Pieces("ab<x", {"<end>"}), (List{"a", "b", "", "<x", ""}));
  EXPECT_EQ(Pieces("ab<en", {"<end>"}), (List{"a", "b", "", "", "", "<en"}));
  EXPECT_EQ(Pieces("a<<end>more", {"<end>"}),
            (List{"a", "", "<", "", "", "", "", "", "", "", "", ""}));
  EXPECT_EQ(Pieces("aab", {"ab", "b"}), (List{"", "a", "", ""}));
}

TEST(IncompleteTail, CountsTheBytesOfACharacterThatIsNotComplete) {
  EXPECT_EQ(IncompleteTail(""), 0);
  EXPECT_EQ(IncompleteTail("a"), 0);
  EXPECT_EQ(IncompleteTail("a\xC3"), 1);
  EXPECT_EQ(IncompleteTail("a\xC3\xA4"), 0);
  EXPECT_EQ(IncompleteTail("\xE2\x82"), 2);
  EXPECT_EQ(IncompleteTail("\xF0\x9F\x98"), 3);
  EXPECT_EQ(IncompleteTail("\x80\x80\x80\x80"), 0);
  EXPECT_EQ(IncompleteTail("\xFF"), 0);
}

}  // namespace
}  // namespace hearth::trainer
