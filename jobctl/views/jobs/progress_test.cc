#include "jobctl/views/jobs/progress.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

v1::Job RunningJob() {
  v1::Job job = spec::JobIn(v1::JOB_STATE_RUNNING, "sweep-1");
  job.set_reason("running since step 1");
  job.set_step(40);
  job.mutable_spec()->mutable_train()->set_steps(60);
  v1::StepReport& last = *job.mutable_last_report();
  last.set_step(40);
  last.set_loss(3.25);
  last.set_grad_norm(1.0);
  last.set_learning_rate(3e-3);
  last.set_tokens_per_second(1230);
  last.set_step_seconds(0.5);
  return job;
}

v1::Job QueuedJob() {
  v1::Job job = spec::JobIn(v1::JOB_STATE_QUEUED, "b");
  job.mutable_spec()->mutable_train()->set_steps(60);
  return job;
}

TEST(Progress, Texts_SayStepSpeedAndTimeLeft) {
  const v1::Job job = RunningJob();
  EXPECT_EQ(ProgressText(job, job.last_report()),
            "step 40/60  loss 3.2500  grad 1.000  lr 3.00e-03  1.23k tok/s  eta 10s");
  EXPECT_EQ(StateText(job), "RUNNING: running since step 1");
  EXPECT_EQ(StateText(QueuedJob()), "QUEUED");
  v1::StepReport done = job.last_report();
  done.set_step(60);
  EXPECT_EQ(EtaText(job, done), "");
}

TEST(Progress, WhenPiped_AboutAHundredLinesAreDueAndTheLastStep) {
  v1::Job job = RunningJob();
  job.mutable_spec()->mutable_train()->set_steps(10'000);
  int64_t printed = 0;
  int due = 0;
  for (int64_t step = 1; step <= 9'999; ++step) {
    if (ProgressDue(job, step, printed, false)) {
      printed = step;
      ++due;
    }
  }
  EXPECT_EQ(due, 99);  // 100, 200, ... 9900
  EXPECT_EQ(printed, 9'900);
  EXPECT_TRUE(ProgressDue(job, 9'950, printed, true));
  EXPECT_FALSE(ProgressDue(job, 9'900, printed, true)) << "it was printed before";
  EXPECT_FALSE(ProgressDue(job, 0, 0, true)) << "no step is done";
}

TEST(Progress, Table_HasARowForEachJob) {
  EXPECT_EQ(RenderProgress({RunningJob(), QueuedJob()}, 80, 24),
            "NAME     STATE    STEP   LOSS    TOK/S  LEFT\n"
            "sweep-1  RUNNING  40/60  3.2500  1.23k  10s\n"
            "b        QUEUED   0/60   -       -      -\n");
}

TEST(Progress, Table_OfAJobThatNothingIsKnownOf) {
  v1::Job job;
  job.set_job_id("a");
  EXPECT_EQ(RenderProgress({job}, 80, 24),
            "NAME  STATE  STEP  LOSS  TOK/S  LEFT\n"
            "a     -      0/0   -     -      -\n");
}

TEST(Progress, TableOfManyJobs_FitsTheWindow) {
  const std::vector<v1::Job> jobs(5, QueuedJob());
  const std::string header = "NAME  STATE   STEP  LOSS  TOK/S  LEFT\n";
  const std::string row = "b     QUEUED  0/60  -     -      -\n";
  EXPECT_EQ(RenderProgress(jobs, 80, 6), header + row + row + row + row + row);
  EXPECT_EQ(RenderProgress(jobs, 80, 5), header + row + row + row + "and 2 more\n");
}

}  // namespace
}  // namespace hearth::jobctl
