#include "worker/daemon/supervise/line_splitter.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LineSplitterTest, Append_Pieces_GivesWholeLines) {
  LineSplitter splitter;
  EXPECT_THAT(splitter.Append("one"), IsEmpty());
  EXPECT_THAT(splitter.Append(" line\r\n\ntwo\nthr"), ElementsAre("one line", "two"));
  EXPECT_EQ(splitter.Finish(), "thr");
  EXPECT_EQ(splitter.Finish(), "");
}

TEST(LineSplitterTest, Append_EndlessLine_IsCut) {
  LineSplitter splitter;
  const std::string text(2 * LineSplitter::kMaxLineBytes + 10, 'a');
  const auto lines = splitter.Append(text);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineSplitter::kMaxLineBytes);
  EXPECT_EQ(splitter.Finish().size(), 10u);
}

TEST(SanitizeUtf8Test, Sanitize_InvalidBytes_AreReplacedAloneAndTextKept) {
  EXPECT_EQ(SanitizeUtf8("caf\xc3\xa9 \xff\xc3 \xe2\x82\xac"), "caf\xc3\xa9 ?? \xe2\x82\xac");
  EXPECT_EQ(SanitizeUtf8("\xc0\x80"), "??");       // overlong
  EXPECT_EQ(SanitizeUtf8("\xed\xa0\x80"), "???");  // surrogate
  EXPECT_EQ(SanitizeUtf8("\xf0\x9f\x94\xa5"), "\xf0\x9f\x94\xa5");
  EXPECT_EQ(SanitizeUtf8("\xe2\x82"), "??");  // cut short
}

}  // namespace
}  // namespace hearth::worker
