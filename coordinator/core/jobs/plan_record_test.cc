#include "coordinator/core/jobs/plan_record.h"

#include "common/spec/feasibility/measured_plan.h"
#include "gtest/gtest.h"
#include "tests/support/common/planned_job.h"

namespace hearth::coordinator {
namespace {

constexpr int64_t kTokens = int64_t{8} * 2048 * 4;

// A job on a GPU of this name whose rank 0 has started.
JobState Started(const std::string& gpu, const JobState* before = nullptr) {
  v1::JobRecord record = before == nullptr ? v1::JobRecord() : before->record();
  v1::Job& job = *record.mutable_job();
  *job.mutable_spec() = spec::PlannedJob("hearth-112m", "bf16", 8, 2048);
  job.set_epoch(job.epoch() + 1);
  job.mutable_devices()->clear_groups();
  v1::DeviceGroup& group = *job.mutable_devices()->add_groups();
  group.set_model(gpu);
  group.add_worker_ids("w");
  v1::RunInfo& run = *job.mutable_run_info();
  run.set_micro_batch_size(8);
  run.set_world_size(1);
  run.set_global_batch_tokens(kTokens);
  JobState state(std::move(record));
  PlanRun(state);
  return state;
}

void Steps(JobState& job, int64_t from, int64_t to, double tok_s) {
  for (int64_t step = from; step <= to; ++step) {
    v1::StepReport report;
    report.set_step(step);
    report.set_step_seconds(static_cast<double>(kTokens) / tok_s);
    report.set_tokens_per_second(tok_s);
    MeasureRun(job, report);
  }
}

TEST(RunPlansTest, StepsAfterTheWarmUp_AreMeasured) {
  JobState job = Started("NVIDIA H200");
  ASSERT_TRUE(job.record().has_plan());
  EXPECT_EQ(job.record().plan().epoch(), 1);
  EXPECT_GT(job.record().plan().tokens_per_second(), 1e5);
  Steps(job, 1, 10, 1e3);
  EXPECT_FALSE(job.record().plan().has_measured());
  Steps(job, 11, 30, 5e5);
  EXPECT_EQ(job.record().plan().measured().steps(), 20);
  EXPECT_NEAR(spec::MeasuredTokS(job.record().plan()), 5e5, 1);
}

TEST(RunPlansTest, AnEpochThatIsPlannedAlike_GoesOnWithTheSums) {
  JobState first = Started("NVIDIA H200");
  Steps(first, 1, 30, 5e5);
  JobState second = Started("NVIDIA H200", &first);
  EXPECT_EQ(second.record().plan().epoch(), 2);
  EXPECT_EQ(second.record().plan().measured().steps(), 20);
  JobState elsewhere = Started("NVIDIA H100 80GB HBM3", &second);
  EXPECT_EQ(elsewhere.record().plan().gpu(), "H100 SXM");
  EXPECT_FALSE(elsewhere.record().plan().has_measured()) << "another GPU";
}

TEST(RunPlansTest, AJobOnCpus_HasNoPlan) {
  JobState job{v1::JobRecord()};
  PlanRun(job);
  EXPECT_FALSE(job.record().has_plan());
  Steps(job, 1, 30, 5e5);
  EXPECT_FALSE(job.record().has_plan());
}

}  // namespace
}  // namespace hearth::coordinator
