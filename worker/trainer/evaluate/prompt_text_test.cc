#include "worker/trainer/evaluate/prompt_text.h"

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

TEST(PromptText, StripAndTrailingSpace_AsPythonHasThem) {
  EXPECT_EQ(Strip(" \t\xc2\xa0 one two\xe3\x80\x80\n"), "one two");
  EXPECT_EQ(Strip(" \x1c "), "");
  EXPECT_EQ(Strip("\xe2\x80\x8b"), "\xe2\x80\x8b") << "a zero-width space is none";
  EXPECT_EQ(TrailingSpace("Answer: \n"), 2U);
  EXPECT_EQ(TrailingSpace("Answer:\xe2\x80\x89"), 3U);
  EXPECT_EQ(TrailingSpace("   "), 3U);
  EXPECT_EQ(TrailingSpace(""), 0U);
}

TEST(PromptText, Capitalize_LowersTheRest) {
  EXPECT_EQ(Capitalize("then SHE opens IT"), "Then she opens it");
  EXPECT_EQ(Capitalize("\xc3\xa9T\xc3\x89 \xd0\x96"), "\xc3\x89t\xc3\xa9 \xd0\xb6");
  EXPECT_EQ(Capitalize(" A"), " a");
  EXPECT_EQ(Capitalize(""), "");
}

TEST(PromptText, Characters_AreNotBytes) {
  EXPECT_EQ(Characters("h\xc3\xa9\xe3\x80\x80\xf0\x9f\x99\x82"), 4);
  EXPECT_EQ(Characters(""), 0);
}

}  // namespace
}  // namespace hearth::trainer
