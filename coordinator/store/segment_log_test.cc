#include "coordinator/store/segment_log.h"

#include <filesystem>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/io/faulty_env.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

class SegmentLogTest : public testing::Test {
 protected:
  SegmentLogTest() {
    std::string pattern = testing::TempDir() + "/segment_log_XXXXXX";
    root_ = mkdtemp(pattern.data());
    dir_ = root_ + "/job/log";
  }
  ~SegmentLogTest() override { std::filesystem::remove_all(root_); }

  SegmentLog Open(SegmentLog::Position position = {}) {
    return SegmentLog(env_, dir_, {.segment_bytes = 200, .max_bytes = 600}, position);
  }

  // Cursors first..last, each with the payload "record <cursor>".
  static void Write(SegmentLog& log, int64_t first, int64_t last) {
    for (int64_t cursor = first; cursor <= last; ++cursor) {
      log.Append(cursor, 1, absl::StrCat("record ", cursor));
      ASSERT_TRUE(log.Sync().ok());
    }
    log.Publish();
  }

  static std::string Cursors(const SegmentLog::ReadResult& result) {
    std::string out;
    for (const auto& record : result.records) {
      EXPECT_EQ(record.payload, absl::StrCat("record ", record.cursor));
      absl::StrAppend(&out, out.empty() ? "" : " ", record.cursor);
    }
    return out;
  }

  Env& env_ = Env::Real();
  std::string root_;
  std::string dir_;
};

TEST_F(SegmentLogTest, Read_BeforePublish_SeesNothing) {
  SegmentLog log = Open();
  log.Append(1, 0, "x");
  ASSERT_TRUE(log.Sync().ok());
  SegmentLog::ReadState state;
  const auto result = log.Read(state, 1000);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->records.empty());
  EXPECT_TRUE(result->at_end);
}

TEST_F(SegmentLogTest, Read_InSmallPieces_ReturnsEveryRecordOnceInOrder) {
  SegmentLog log = Open();
  Write(log, 1, 15);
  SegmentLog::ReadState state;
  std::string seen;
  while (true) {
    const auto result = log.Read(state, 40);
    ASSERT_TRUE(result.ok()) << result.status();
    absl::StrAppend(&seen, Cursors(*result), " ");
    if (result->at_end) {
      break;
    }
  }
  EXPECT_EQ(std::string(absl::StripAsciiWhitespace(seen)), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
  Write(log, 16, 17);
  const auto more = log.Read(state, 1000);
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(Cursors(*more), "16 17");
}

TEST_F(SegmentLogTest, Read_FromTheMiddle_SkipsToTheCursor) {
  SegmentLog log = Open();
  Write(log, 1, 12);
  SegmentLog::ReadState state{.next = 10};
  const auto result = log.Read(state, 1000);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Cursors(*result), "10 11 12");
  EXPECT_EQ(result->dropped, 0);
}

TEST_F(SegmentLogTest, Append_PastTheBound_DropsOldestSegmentsAndCounts) {
  SegmentLog log = Open();
  Write(log, 1, 60);
  const SegmentLog::Position position = log.committed();
  EXPECT_GT(position.first, 1);
  EXPECT_EQ(position.dropped, position.first - 1);
  SegmentLog::ReadState state;
  const auto result = log.Read(state, 1 << 20);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->dropped, position.dropped);
  ASSERT_FALSE(result->records.empty());
  EXPECT_EQ(result->records.front().cursor, position.first);
  EXPECT_EQ(result->records.back().cursor, 60);
}

TEST_F(SegmentLogTest, Read_GapInCursors_IsCountedAsDropped) {
  SegmentLog log = Open();
  Write(log, 1, 2);
  Write(log, 6, 7);
  SegmentLog::ReadState state;
  const auto result = log.Read(state, 1000);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Cursors(*result), "1 2 6 7");
  EXPECT_EQ(result->dropped, 3);
}

TEST_F(SegmentLogTest, Recover_UncommittedTail_IsCutAndItsCursorsWrittenAnew) {
  SegmentLog::Position committed;
  {
    SegmentLog log = Open();
    Write(log, 1, 9);
    committed = log.position();
    for (int64_t cursor = 10; cursor <= 30; ++cursor) {  // reaches new segments
      log.Append(cursor, 1, "never committed");
      ASSERT_TRUE(log.Sync().ok());
    }
  }
  SegmentLog log = Open(committed);
  std::string warning;
  ASSERT_TRUE(log.Recover(warning).ok());
  EXPECT_EQ(warning, "");
  Write(log, 10, 11);
  SegmentLog::ReadState state;
  const auto result = log.Read(state, 1 << 20);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Cursors(*result), "1 2 3 4 5 6 7 8 9 10 11");
}

TEST_F(SegmentLogTest, Recover_TailShorterThanRecorded_KeepsWholeFramesAndSaysWhatIsLost) {
  SegmentLog::Position committed;
  {
    SegmentLog log = Open();
    Write(log, 1, 5);
    committed = log.position();
  }
  const std::string path = absl::StrCat(dir_, "/00000000000000000001.seg");
  ASSERT_TRUE(env_.Truncate(path, committed.tail_bytes - 3).ok());
  SegmentLog log = Open(committed);
  std::string warning;
  ASSERT_TRUE(log.Recover(warning).ok());
  EXPECT_NE(warning.find("1 recorded"), std::string::npos) << warning;
  Write(log, 6, 6);
  SegmentLog::ReadState state;
  const auto result = log.Read(state, 1 << 20);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Cursors(*result), "1 2 3 4 6");
  EXPECT_EQ(result->dropped, 1);
}

TEST_F(SegmentLogTest, Read_FlippedByte_IsDataLossThatNamesFileAndOffset) {
  SegmentLog log = Open();
  Write(log, 1, 3);
  const std::string path = absl::StrCat(dir_, "/00000000000000000001.seg");
  std::string bytes = *env_.ReadFile(path);
  bytes[bytes.size() - 1] ^= 1;
  ASSERT_TRUE(env_.WriteFileAtomically(path, bytes).ok());
  SegmentLog::ReadState state;
  const auto result = log.Read(state, 1 << 20);
  ASSERT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(result.status().message().find("offset"), absl::string_view::npos);
}

TEST_F(SegmentLogTest, Sync_DiskFull_IsResourceExhausted) {
  FaultyEnv env(Env::Real());
  SegmentLog log(env, dir_, {.segment_bytes = 200, .max_bytes = 600}, {});
  env.SetDiskSpace(30);
  log.Append(1, 0, std::string(100, 'x'));
  EXPECT_EQ(log.Sync().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hearth::coordinator
