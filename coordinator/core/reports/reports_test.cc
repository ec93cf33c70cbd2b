#include "coordinator/core/reports/reports.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using testing::HasSubstr;

JobState JobOf(int64_t steps) {
  v1::JobRecord record;
  record.mutable_job()->mutable_spec()->mutable_train()->set_steps(steps);
  return JobState(record);
}

v1::TaskReport StepAt(int64_t step) {
  v1::TaskReport report;
  report.mutable_step()->set_step(step);
  return report;
}

TEST(ReportsCheck, Steps_AreWithinTheJob) {
  const JobState job = JobOf(10);
  EXPECT_TRUE(Reports::Check(job, StepAt(1)).ok());
  EXPECT_TRUE(Reports::Check(job, StepAt(10)).ok());
  for (const int64_t step : {int64_t{-1}, int64_t{0}, int64_t{11}, INT64_MAX}) {
    const absl::Status status = Reports::Check(job, StepAt(step));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << step;
    EXPECT_THAT(std::string(status.message()), HasSubstr("report.step.step"));
  }
}

TEST(ReportsCheck, StepsSetBelowWhatIsDone_DoneStepsAreAllowed) {
  JobState job = JobOf(10);
  job.set_step(20);
  EXPECT_TRUE(Reports::Check(job, StepAt(20)).ok());
  EXPECT_FALSE(Reports::Check(job, StepAt(21)).ok());
  job.checkpoints().Add()->set_step(30);
  job.NameNewest();
  EXPECT_TRUE(Reports::Check(job, StepAt(30)).ok());
}

TEST(ReportsCheck, CheckpointsAndStarts_AreWithinTheJob) {
  const JobState job = JobOf(10);
  v1::TaskReport report;
  report.mutable_checkpoint()->set_step(0);
  EXPECT_FALSE(Reports::Check(job, report).ok());
  report.mutable_checkpoint()->set_step(10);
  EXPECT_TRUE(Reports::Check(job, report).ok());
  report.mutable_run_info()->set_start_step(0);
  EXPECT_TRUE(Reports::Check(job, report).ok());
  report.mutable_run_info()->set_start_step(11);
  EXPECT_FALSE(Reports::Check(job, report).ok());
}

}  // namespace
}  // namespace hearth::coordinator
