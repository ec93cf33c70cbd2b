#include "coordinator/store/segment_log.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/io/faulty_env.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::coordinator {
namespace {

class SegmentLogTest : public testing::Test {
 protected:
  SegmentLog Open(SegmentLog::Position position = {}) {
    return SegmentLog(env_, dir_, {.segment_bytes = 200, .max_bytes = 600}, position);
  }

  // Cursors first..last, each with the payload "record <cursor>".
  static void Write(SegmentLog& log, int64_t first, int64_t last) {
    for (int64_t cursor = first; cursor <= last; ++cursor) {
      log.Append(cursor, 1, absl::StrCat("record ", cursor));
      log.Publish();
      ASSERT_TRUE(log.Sync().ok());
    }
  }

  // For recoveries that know all there is.
  static SegmentLog::Keep KeepNothing() {
    return [](const std::string& path, bool) {
      ADD_FAILURE() << path;
      return absl::OkStatus();
    };
  }

  static std::string Cursors(const SegmentLog::ReadResult& result) {
    std::string out;
    for (const auto& record : result.records) {
      EXPECT_EQ(record.payload, absl::StrCat("record ", record.cursor));
      absl::StrAppend(&out, out.empty() ? "" : " ", record.cursor);
    }
    return out;
  }

  // The cursors that a reader gets who begins at the first.
  static std::string AllCursors(const SegmentLog& log) {
    SegmentLog::ReadState state;
    const auto result = log.Read(state, 1 << 20);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? Cursors(*result) : "";
  }

  Env& env_ = Env::Real();
  const TempDir temp_;
  const std::string dir_ = temp_.path() + "/job/log";
};

TEST_F(SegmentLogTest, Read_BeforePublish_SeesNothing) {
  SegmentLog log = Open();
  log.Append(1, 0, "x");
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

TEST_F(SegmentLogTest, Read_PartInFilesAndPartInMemory_ReturnsBothInOrder) {
  SegmentLog log = Open();
  Write(log, 1, 4);
  SegmentLog::ReadState early;
  ASSERT_TRUE(log.Read(early, 1).ok());  // stands within the file
  for (int64_t cursor = 5; cursor <= 8; ++cursor) {
    log.Append(cursor, 1, absl::StrCat("record ", cursor));
  }
  log.Publish();
  EXPECT_EQ(log.synced().end, 4);
  EXPECT_EQ(log.committed().end, 8);
  SegmentLog::ReadState state;
  const auto result = log.Read(state, 1 << 20);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Cursors(*result), "1 2 3 4 5 6 7 8");
  EXPECT_TRUE(result->at_end);
  // The same reader goes on after the records have moved to the files.
  ASSERT_TRUE(log.Sync().ok());
  EXPECT_EQ(log.synced().end, 8);
  const auto later = log.Read(early, 1 << 20);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(Cursors(*later), "2 3 4 5 6 7 8");
}

TEST_F(SegmentLogTest, Sync_MuchAtOnce_StartsSegmentsAtTheirBound) {
  SegmentLog log = Open();
  for (int64_t cursor = 1; cursor <= 15; ++cursor) {
    log.Append(cursor, 1, absl::StrCat("record ", cursor));
  }
  log.Publish();
  ASSERT_TRUE(log.Sync().ok());
  EXPECT_GT(log.synced().tail_first, 1);
  EXPECT_LE(log.synced().tail_bytes, 200);
  EXPECT_EQ(AllCursors(log), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
}

TEST_F(SegmentLogTest, Sync_AfterAbandon_WritesNothing) {
  SegmentLog log = Open();
  log.Append(1, 1, "x");
  log.Publish();
  log.Abandon();
  ASSERT_TRUE(log.Sync().ok());
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(SegmentLogTest, Recover_RecordsTheStoreDoesNotKnow_AreKeptAside) {
  SegmentLog::Position recorded;
  {
    SegmentLog log = Open();
    Write(log, 1, 3);
    recorded = log.synced();
    Write(log, 4, 30);  // reaches new segments
  }
  SegmentLog log = Open(recorded);
  std::vector<std::string> warnings;
  std::vector<std::string> kept;
  ASSERT_TRUE(log.Recover(
                     5,
                     [&](const std::string& path, bool whole) {
                       kept.push_back(absl::StrCat(whole ? "whole " : "copy ",
                                                   path.substr(path.rfind('/') + 1)));
                       return absl::OkStatus();
                     },
                     warnings)
                  .ok());
  ASSERT_GE(kept.size(), 3u);
  EXPECT_EQ(kept.size(), warnings.size());
  EXPECT_NE(std::find(kept.begin(), kept.end(), "copy 00000000000000000001.seg"), kept.end());
  EXPECT_EQ(std::count_if(kept.begin(), kept.end(),
                          [](const std::string& k) { return k.rfind("whole", 0) == 0; }),
            static_cast<int64_t>(kept.size()) - 1);
}

TEST_F(SegmentLogTest, Rebuild_OfALostPosition_TakesWhatIsWhole) {
  SegmentLog::Position recorded;
  {
    SegmentLog log = Open();
    Write(log, 1, 60);  // drops the oldest
    recorded = log.synced();
    log.RemoveDropped();
  }
  const auto all = SegmentLog::Rebuild(env_, dir_, INT64_MAX);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(*all, recorded);
  const auto some = SegmentLog::Rebuild(env_, dir_, 57);
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some->end, 57);
  const auto none = SegmentLog::Rebuild(env_, dir_ + "-absent", INT64_MAX);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, SegmentLog::Position{});
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

TEST_F(SegmentLogTest, Recover_UnrecordedTail_IsCutAndItsCursorsWrittenAgain) {
  SegmentLog::Position committed;
  {
    SegmentLog log = Open();
    Write(log, 1, 9);
    committed = log.synced();
    for (int64_t cursor = 10; cursor <= 30; ++cursor) {  // reaches new segments
      log.Append(cursor, 1, "never recorded");
      log.Publish();
      ASSERT_TRUE(log.Sync().ok());
    }
  }
  SegmentLog log = Open(committed);
  std::vector<std::string> warnings;
  ASSERT_TRUE(log.Recover(30, KeepNothing(), warnings).ok());
  EXPECT_TRUE(warnings.empty());
  Write(log, 10, 11);
  EXPECT_EQ(AllCursors(log), "1 2 3 4 5 6 7 8 9 10 11");
}

TEST_F(SegmentLogTest, Recover_TailShorterThanRecorded_KeepsWholeFramesAndSaysWhatIsLost) {
  SegmentLog::Position committed;
  {
    SegmentLog log = Open();
    Write(log, 1, 5);
    committed = log.synced();
  }
  const std::string path = absl::StrCat(dir_, "/00000000000000000001.seg");
  ASSERT_TRUE(env_.Truncate(path, committed.tail_bytes - 3).ok());
  SegmentLog log = Open(committed);
  std::vector<std::string> warnings;
  ASSERT_TRUE(log.Recover(5, KeepNothing(), warnings).ok());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("1 recorded"), std::string::npos) << warnings[0];
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
  log.Publish();
  EXPECT_EQ(log.Sync().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hearth::coordinator
