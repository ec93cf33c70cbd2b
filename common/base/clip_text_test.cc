#include "common/base/clip_text.h"

#include <string>

#include "gtest/gtest.h"

namespace hearth {
namespace {

TEST(ClipTextTest, ControlCharacters_AreReplaced_LineEndsStay) {
  EXPECT_EQ(ClipText("a\x1b[31mb\nc\td\x7f", 100), "a?[31mb\nc\td?");
  EXPECT_EQ(ClipText(std::string("a\0b", 3), 100), "a?b");
}

TEST(ClipTextTest, LongText_IsCutBetweenCharacters) {
  EXPECT_EQ(ClipText("abc", 3), "abc");
  EXPECT_EQ(ClipText("abcd", 3), "abc");
  EXPECT_EQ(ClipText("a\u00e9\u00e9", 4), "a\u00e9");  // each has two bytes
  EXPECT_EQ(ClipText("\u20ac", 2), "");
  EXPECT_EQ(ClipBytes("a\u00e9", 2), "a");
}

}  // namespace
}  // namespace hearth
