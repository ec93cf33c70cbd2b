#include "worker/daemon/report_buffer.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

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
  buffer.AddLog(Line("a"));
  buffer.AddLog(Line("b"));
  EXPECT_EQ(buffer.last_seq(), 0);
  EXPECT_FALSE(buffer.empty());
  EXPECT_TRUE(buffer.SealLogs());
  const auto reports = All(buffer);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].logs().lines_size(), 2);
}

TEST(ReportBufferTest, Add_Exit_ComesAfterTheOpenLogs) {
  ReportBuffer buffer("job", 1, 0, {});
  buffer.AddLog(Line("last words"));
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
    buffer.AddLog(Line(std::string(500, 'x')));
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
    buffer.AddLog(Line(std::string(200, 'y')));
    if (i % 7 == 0) {
      buffer.Ack(buffer.last_seq() - 2);
    }
    EXPECT_LE(buffer.bytes(), 3000);
  }
}

}  // namespace
}  // namespace hearth::worker
