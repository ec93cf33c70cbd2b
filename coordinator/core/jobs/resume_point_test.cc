#include "coordinator/core/jobs/resume_point.h"

#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

TEST(ResumePointTest, TaskThatTrains_GoesOnFromTheNewestCheckpoint) {
  v1::Job job;
  job.mutable_spec()->set_task("pretrain");
  job.set_step(70);
  EXPECT_EQ(ResumePointOf(job).step, 0) << "steps without a checkpoint are lost";
  EXPECT_EQ(ResumePointOf(job).root_uuid, "");
  EXPECT_EQ(ResumePointOf(job).checkpoint_step, 0);
  job.mutable_checkpoint()->set_step(60);
  job.mutable_checkpoint()->set_root_uuid("root");
  EXPECT_EQ(ResumePointOf(job).step, 60);
  EXPECT_EQ(ResumePointOf(job).root_uuid, "root");
  EXPECT_EQ(ResumePointOf(job).checkpoint_step, 60);
}

TEST(ResumePointTest, TaskThatReadsModels_GoesOnWithTheNextModel) {
  v1::Job job;
  job.mutable_spec()->set_task("eval");
  for (const int64_t step : {100, 200}) {
    v1::Checkpoint& checkpoint = *job.add_models()->mutable_checkpoint();
    checkpoint.set_step(step);
    checkpoint.set_root_uuid("root");
  }
  EXPECT_EQ(ResumePointOf(job).step, 0);
  EXPECT_EQ(ResumePointOf(job).checkpoint_step, 100);
  job.set_step(1);
  EXPECT_EQ(ResumePointOf(job).step, 1);
  EXPECT_EQ(ResumePointOf(job).root_uuid, "root");
  EXPECT_EQ(ResumePointOf(job).checkpoint_step, 200);
  job.set_step(2);
  EXPECT_EQ(ResumePointOf(job).step, 2) << "all are done";
  EXPECT_EQ(ResumePointOf(job).checkpoint_step, 200);
}

TEST(ResumePointTest, TaskThatReadsModels_NeedsNoRootForFolders) {
  v1::Job job;
  job.mutable_spec()->set_task("eval");
  EXPECT_EQ(ResumePointOf(job).step, 0);
  EXPECT_EQ(ResumePointOf(job).root_uuid, "");
  job.add_models()->mutable_checkpoint()->set_path("/models/llama");
  EXPECT_EQ(ResumePointOf(job).root_uuid, "");
  EXPECT_EQ(ResumePointOf(job).checkpoint_step, 0);
}

}  // namespace
}  // namespace hearth::coordinator
