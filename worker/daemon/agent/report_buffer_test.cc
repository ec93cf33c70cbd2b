#include "worker/daemon/agent/report_buffer.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

constexpr absl::Duration kNow = absl::Seconds(1000);

v1::TaskReport Step(int64_t step) {
  v1::TaskReport report;
  report.mutable_step()->set_step(step);
  return report;
}

v1::LogLine Line(const std::string& text) {
  v1::LogLine line;
  line.set_text(text);
  return line;
}

std::vector<v1::TaskReport> All(const ReportBuffer& buffer, int64_t after = 0) {
  std::vector<v1::TaskReport> out;
  while (auto report = buffer.After(after)) {
    after = report->seq();
    out.push_back(*std::move(report));
  }
  return out;
}

TEST(ReportBufferTest, Add_Reports_NumbersFromOneWithIdentity) {
  ReportBuffer buffer("job", 3, 1, {});
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.Add(Step(1)), 1);
  EXPECT_EQ(buffer.Add(Step(2)), 2);
  const auto reports = All(buffer);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[1].job_id(), "job");
  EXPECT_EQ(reports[1].epoch(), 3);
  EXPECT_EQ(reports[1].rank(), 1);
  EXPECT_EQ(reports[1].seq(), 2);
  EXPECT_EQ(reports[1].step().step(), 2);
}

TEST(ReportBufferTest, Ack_Cumulative_KeepsTheRestAndFreesBytes) {
  ReportBuffer buffer("job", 1, 0, {});
  for (int i = 1; i <= 5; ++i) {
    buffer.Add(Step(i));
  }
  buffer.Ack(3);
  EXPECT_EQ(buffer.first_unacked_seq(), 4);
  EXPECT_EQ(All(buffer).size(), 2u);
  EXPECT_EQ(All(buffer, 4).size(), 1u);
  buffer.Ack(1);  // late and lower: nothing changes
  EXPECT_EQ(buffer.first_unacked_seq(), 4);
  buffer.Ack(99);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.bytes(), 0);
  EXPECT_EQ(buffer.first_unacked_seq(), 0);
  EXPECT_EQ(buffer.Add(Step(6)), 6);
}

TEST(ReportBufferTest, AddLog_Lines_AreNumberedTogetherWhenSealed) {
  ReportBuffer buffer("job", 1, 0, {});
  EXPECT_FALSE(buffer.SealLogs());
  buffer.AddLog(Line("a"), kNow);
  buffer.AddLog(Line("b"), kNow);
  EXPECT_EQ(buffer.last_seq(), 0);
  EXPECT_FALSE(buffer.empty());
  EXPECT_TRUE(buffer.SealLogs());
  const auto reports = All(buffer);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].logs().lines_size(), 2);
}

TEST(ReportBufferTest, Add_Exit_ComesAfterTheOpenLogs) {
  ReportBuffer buffer("job", 1, 0, {});
  buffer.AddLog(Line("last words"), kNow);
  v1::TaskReport exit;
  exit.mutable_exit()->set_clean(true);
  buffer.Add(std::move(exit));
  const auto reports = All(buffer);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_TRUE(reports[0].has_logs());
  EXPECT_TRUE(reports[1].has_exit());
}

TEST(ReportBufferTest, LogBound_Exceeded_DropsOldestLinesCountsThemAndKeepsSteps) {
  ReportLimits limits;
  limits.log_bytes = 4000;
  limits.batch_bytes = 1000;
  ReportBuffer buffer("job", 1, 0, limits);
  for (int i = 1; i <= 50; ++i) {
    buffer.Add(Step(i));
    buffer.AddLog(Line(std::string(500, 'x')), kNow);
  }
  buffer.SealLogs();
  int64_t next = 1;
  int64_t steps = 0;
  int64_t kept = 0;
  int64_t dropped = 0;
  for (const v1::TaskReport& report : All(buffer)) {
    EXPECT_EQ(report.seq(), next++);  // no gaps
    if (report.has_step()) {
      EXPECT_EQ(report.step().step(), ++steps);
    }
    if (report.has_logs()) {
      kept += report.logs().lines_size();
      dropped += report.logs().dropped();
    }
  }
  EXPECT_EQ(steps, 50);
  EXPECT_EQ(kept + dropped, 50);
  EXPECT_GT(kept, 2);
  EXPECT_GT(dropped, 20);
  EXPECT_EQ(buffer.dropped_log_lines(), dropped);
  EXPECT_EQ(buffer.dropped_log_bytes(), dropped * 500);
  EXPECT_EQ(buffer.dropped_steps(), 0);
}

TEST(ReportBufferTest, StepBound_Exceeded_HollowsOldestStepsAlone) {
  ReportLimits limits;
  limits.step_bytes = 1000;
  ReportBuffer buffer("job", 1, 0, limits);
  v1::TaskReport checkpoint;
  checkpoint.mutable_checkpoint()->set_step(7);
  buffer.Add(std::move(checkpoint));
  for (int i = 1; i <= 100; ++i) {
    buffer.Add(Step(i));
  }
  const auto reports = All(buffer);
  ASSERT_EQ(reports.size(), 101u);
  EXPECT_TRUE(reports[0].has_checkpoint());
  EXPECT_FALSE(reports[1].has_step());
  EXPECT_EQ(reports.back().step().step(), 100);
  int64_t steps = 0;
  for (const v1::TaskReport& report : reports) {
    steps += report.has_step() ? 1 : 0;
  }
  EXPECT_EQ(buffer.dropped_steps(), 100 - steps);
  EXPECT_GT(steps, 5);
}

TEST(ReportBufferTest, LogBound_AfterAcks_StillWorks) {
  ReportLimits limits;
  limits.log_bytes = 2000;
  limits.batch_bytes = 100;
  ReportBuffer buffer("job", 1, 0, limits);
  for (int i = 0; i < 200; ++i) {
    buffer.AddLog(Line(std::string(200, 'y')), kNow);
    if (i % 7 == 0) {
      buffer.Ack(buffer.last_seq() - 2);
    }
    EXPECT_LE(buffer.bytes(), 3000);
  }
}

// A flood costs the middle of the log: the burst gets through, then the rate, and the last lines
// before the end stay, whatever was said in between.
TEST(ReportBufferTest, LogRate_Flood_DropsCountsAndKeepsTheLastWords) {
  ReportLimits limits;
  limits.log_bytes_per_second = 1000;
  limits.log_burst_bytes = 10'000;
  limits.log_tail_bytes = 1000;
  ReportBuffer buffer("job", 1, 0, limits);
  for (int i = 0; i < 10'000; ++i) {  // 1 MB in 10 s
    const absl::Duration now = kNow + i * absl::Milliseconds(1);
    buffer.AddLog(Line(std::string(94, 'x') + std::to_string(100'000 + i)), now);
    if (i % 1000 == 999) {
      buffer.LetIn(now);
    }
  }
  v1::TaskReport exit;
  exit.mutable_exit()->set_clean(true);
  buffer.Add(std::move(exit));
  int64_t kept = 0;
  int64_t dropped = 0;
  std::string last;
  for (const v1::TaskReport& report : All(buffer)) {
    kept += report.logs().lines_size();
    dropped += report.logs().dropped();
    for (const v1::LogLine& line : report.logs().lines()) {
      EXPECT_LT(last, line.text()) << "in order";
      last = line.text();
    }
  }
  EXPECT_EQ(kept + dropped, 10'000);
  EXPECT_GE(kept, 190);  // the burst's 100 lines, then 10 a second
  EXPECT_LE(kept, 210);
  EXPECT_EQ(last, std::string(94, 'x') + "109999");
  EXPECT_EQ(buffer.dropped_log_lines(), dropped);
  EXPECT_EQ(buffer.dropped_log_bytes(), dropped * 100);
}

TEST(ReportBufferTest, LogRate_AfterAFlood_WhatWaitsComesWithTheTime) {
  ReportLimits limits;
  limits.log_bytes_per_second = 100;
  limits.log_burst_bytes = 100;
  ReportBuffer buffer("job", 1, 0, limits);
  for (const char* text : {"first", "second", "third"}) {
    buffer.AddLog(Line(std::string(95, ' ') + text), kNow);
  }
  EXPECT_TRUE(buffer.SealLogs());
  EXPECT_FALSE(buffer.empty());
  buffer.Ack(1);
  EXPECT_FALSE(buffer.SealLogs());
  EXPECT_FALSE(buffer.empty()) << "two lines wait";
  buffer.LetIn(kNow + absl::Seconds(1.1));
  EXPECT_TRUE(buffer.SealLogs());
  buffer.LetIn(kNow + absl::Seconds(3));
  EXPECT_TRUE(buffer.SealLogs());
  buffer.Ack(3);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.dropped_log_lines(), 0);
}

}  // namespace
}  // namespace hearth::worker
