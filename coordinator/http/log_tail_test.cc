#include "coordinator/http/log_tail.h"

#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/io/env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;

class LogTailTest : public testing::Test {
 protected:
  void Put(int32_t rank, std::string text, int64_t epoch = 1) {
    v1::LogLine line;
    line.set_rank(rank);
    line.set_epoch(epoch);
    line.set_text(std::move(text));
    log_.Append(++cursor_, 0, line.SerializeAsString());
    log_.Publish();
  }
  LogTail Read(const LogQuery& query) {
    const absl::StatusOr<LogTail> tail = ReadLogTail(log_, query);
    EXPECT_TRUE(tail.ok()) << tail.status();
    return *tail;
  }
  static std::vector<std::string> Texts(const LogTail& tail) {
    std::vector<std::string> texts;
    for (const v1::LogLine& line : tail.lines) {
      texts.push_back(line.text());
    }
    return texts;
  }

  const TempDir temp_;
  int64_t cursor_ = 0;
  SegmentLog log_{Env::Real(), temp_.path() + "/log", SegmentLogOptions{}, SegmentLog::Position{}};
};

TEST_F(LogTailTest, EmptyLog_HasNoLines) {
  const LogTail tail = Read({});
  EXPECT_TRUE(tail.lines.empty());
  EXPECT_EQ(tail.cursor, 0);
  EXPECT_FALSE(tail.more);
}

TEST_F(LogTailTest, Filters_AndTail_KeepTheNewest) {
  for (int i = 0; i < 10; ++i) {
    Put(i % 2, std::to_string(i), 1 + i / 6);
  }
  EXPECT_THAT(Texts(Read({.tail = 2, .rank = 1})), ElementsAre("7", "9"));
  EXPECT_THAT(Texts(Read({.epoch = 2})), ElementsAre("6", "7", "8", "9"));
  EXPECT_TRUE(Read({.tail = 2}).more);
  EXPECT_FALSE(Read({.tail = 10}).more);
}

TEST_F(LogTailTest, After_GivesOnlyWhatIsNew_AndMovesOverUnwantedLines) {
  Put(0, "a");
  Put(1, "b");
  const LogTail first = Read({.rank = 0});
  EXPECT_EQ(first.cursor, 2);
  Put(0, "c");
  EXPECT_THAT(Texts(Read({.after = first.cursor, .rank = 0})), ElementsAre("c"));
  EXPECT_EQ(Read({.after = 3}).cursor, 3);
  const LogTail beyond = Read({.after = std::numeric_limits<int64_t>::max()});
  EXPECT_THAT(Texts(beyond), ElementsAre());
  EXPECT_FALSE(beyond.more);
}

TEST_F(LogTailTest, RareRank_IsLookedForOnlySoFarBack) {
  Put(1, "rare");
  for (int64_t i = 0; i < kLogLookBack; ++i) {
    Put(0, "x");
  }
  const LogTail tail = Read({.rank = 1});
  EXPECT_TRUE(tail.lines.empty());
  EXPECT_TRUE(tail.more) << "there may be some before";
  EXPECT_EQ(tail.cursor, kLogLookBack + 1);
}

TEST_F(LogTailTest, LongLines_AreBoundedByBytes) {
  const std::string text(kLogTailBytes / 2 + 1, 'x');
  Put(0, text);
  Put(0, text);
  const LogTail tail = Read({});
  EXPECT_EQ(tail.lines.size(), 1u);
  EXPECT_TRUE(tail.more);
  Put(0, std::string(kLogTailBytes + 1, 'y'));
  EXPECT_EQ(Read({}).lines.size(), 1u) << "one line is always there";
}

TEST_F(LogTailTest, LinesThatTheBoundDropped_AreMissed) {
  SegmentLog small(Env::Real(), temp_.path() + "/small",
                   SegmentLogOptions{.segment_bytes = 100, .max_bytes = 300},
                   SegmentLog::Position{});
  v1::LogLine line;
  line.set_text(std::string(80, 'x'));
  for (int64_t i = 1; i <= 20; ++i) {
    small.Append(i, 0, line.SerializeAsString());
    small.Publish();
    ASSERT_TRUE(small.Sync().ok());
  }
  const absl::StatusOr<LogTail> tail = ReadLogTail(small, {});
  ASSERT_TRUE(tail.ok()) << tail.status();
  EXPECT_TRUE(tail->more);
  EXPECT_EQ(tail->cursor, 20);
}

TEST_F(LogTailTest, DamagedRecord_IsDataLoss) {
  log_.Append(1, 0, "\xff\xff");
  log_.Publish();
  EXPECT_TRUE(absl::IsDataLoss(ReadLogTail(log_, {}).status()));
}

}  // namespace
}  // namespace hearth::coordinator
