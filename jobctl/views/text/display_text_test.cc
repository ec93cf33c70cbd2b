#include "jobctl/views/text/display_text.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::jobctl {
namespace {

TEST(EscapeControl, WhatATerminalObeys_IsShown) {
  EXPECT_EQ(EscapeControl("plain \u00e9\u2581 text\n", true), "plain \u00e9\u2581 text\n");
  EXPECT_EQ(EscapeControl("a\033]0;title\007b\x7f", true), "a\\u001b]0;title\\u0007b\\u007f");
  EXPECT_EQ(EscapeControl("\xc2\x9b", true), "\\u009b") << "CSI as one character";
  EXPECT_EQ(EscapeControl("\x9b"
                          "2J",
                          true),
            "\\u009b2J")
      << "and as one byte";
  EXPECT_EQ(EscapeControl("\xe2\x80\xae", true), "\\u202e") << "right to left from here";
  EXPECT_EQ(EscapeControl("\xc0\x8a\xed\xa0\x80\xff", true),
            "\\u00c0\\u008a\\u00ed\\u00a0\\u0080\\u00ff")
      << "not UTF-8";
  EXPECT_EQ(EscapeControl("a\nb", false), "a\\u000ab");
}

TEST(WrapText, LongText_BreaksAtWords) {
  EXPECT_EQ(WrapText("short", 10, 4), "short");
  EXPECT_EQ(WrapText("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(WrapText("incomprehensible x", 7, 0, LongWords::kKeep), "incomprehensible\nx");
}

TEST(WrapText, ALongWord_IsBrokenAfterASlashElseWhereTheLineIsFull) {
  EXPECT_EQ(WrapText("incomprehensible x", 7, 0), "incompr\nehensib\nle x");
  EXPECT_EQ(WrapText("in /data/checkpoints/run-a/step-10", 20, 2),
            "in\n  /data/checkpoints/\n  run-a/step-10");
  EXPECT_EQ(WrapText("\u2581\u2582\u2583 x", 2, 0), "\u2581\u2582\n\u2583\nx");
}

TEST(ShortenMiddle, Path_KeepsMoreOfItsEnd) {
  EXPECT_EQ(ShortenMiddle("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(ShortenMiddle("abcdefghij", 8), "a...ghij");
  EXPECT_EQ(ShortenMiddle("\u2581bcdefghi\u2588", 8), "\u2581...ghi\u2588");
}

TEST(Sparkline, FallingValues_FallsFromFullToLow) {
  EXPECT_EQ(Sparkline({8, 7, 6, 5, 4, 3, 2, 1}, 8), "█▇▆▅▄▃▂▁");
}

TEST(Sparkline, MorePointsThanWidth_AveragesStretches) {
  EXPECT_EQ(Sparkline({1, 1, 9, 9}, 2), "▁█");
  EXPECT_EQ(Sparkline({}, 8), "");
}

TEST(Number, NotFinite_IsADash) {
  EXPECT_EQ(Number(std::nan(""), 3), "-");
  EXPECT_EQ(Number(1.23456, 3), "1.235");
}

}  // namespace
}  // namespace hearth::jobctl
