// A rank of a job of task: eval.
#include <string>

#include "common/spec/fields/idle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBatches = 2;    // micro-batches of the held-out data, and global batches of training
constexpr int kSequences = 8;  // of each: 128 tokens

class EvalRunTest : public testing::Test {
 protected:
  // A run with checkpoints of steps 4 and 8, whose held-out losses it knows.
  EvalRunTest() : maker_(MakeTask(Training(), dir_.path() + "/made"), store_) {
    EXPECT_EQ(RunTo(maker_).reason(), v1::EXIT_REASON_FINISHED);
    EXPECT_EQ(maker_.checkpoints.size(), 2U);
  }

  v1::JobSpec Training() {
    v1::JobSpec spec = SmallJob(dir_.path());
    spec.mutable_train()->set_steps(8);
    spec.mutable_train()->set_eval_every(4);
    spec.mutable_train()->set_eval_batches(kBatches);
    spec.mutable_checkpoint()->set_every_steps(4);
    held_out_ = spec.data().validation(0).path();
    return spec;
  }

  v1::Task EvalTask() {
    v1::JobSpec spec;
    spec.set_name("eval");
    spec.set_task("eval");
    spec.mutable_evaluate()->set_job("small");
    spec.mutable_evaluate()->add_data(held_out_);
    spec.mutable_evaluate()->set_batch(kSequences);
    spec.mutable_evaluate()->set_batches(kBatches);
    const absl::Status resolved = spec::ResolveSubmitted(spec);
    EXPECT_TRUE(resolved.ok()) << resolved.ToString();
    v1::Task task = MakeTask(spec, dir_.path() + "/none");
    for (const v1::CheckpointAnnouncement& checkpoint : maker_.checkpoints) {
      v1::Checkpoint& model = *task.add_models();
      model.set_job_id("small");
      model.set_step(checkpoint.step());
      model.set_path(checkpoint.path());
    }
    return task;
  }

  TempDir dir_;
  LocalKeyValueStore store_;
  std::string held_out_;
  FakeLink maker_;
};

TEST_F(EvalRunTest, RunRank_TwoCheckpoints_FindsTheLossesOfTheirTraining) {
  FakeLink link(EvalTask(), store_);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  EXPECT_EQ(exit.step(), 2);
  ASSERT_EQ(link.steps.size(), 2U);
  for (size_t i = 0; i < link.steps.size(); ++i) {
    const v1::StepReport& report = link.steps[i];
    EXPECT_EQ(report.step(), static_cast<int64_t>(i + 1));
    ASSERT_EQ(report.held_out_size(), 1);
    EXPECT_EQ(report.held_out(0).source(), held_out_);
    EXPECT_EQ(report.held_out(0).tokens(), kBatches * 128);
    EXPECT_FALSE(report.held_out(0).has_bits_per_byte()) << "a .bin file names no tokenizer";
    const double trained = maker_.steps[4 * (i + 1) - 1].validation_loss();
    EXPECT_NEAR(report.held_out(0).loss() / trained, 1.0, 1e-5);
    EXPECT_EQ(report.validation_loss(), report.held_out(0).loss());
  }
  EXPECT_NE(link.steps[0].validation_loss(), link.steps[1].validation_loss());
  EXPECT_GT(link.run_info.parameters(), 0);
  EXPECT_EQ(link.run_info.recipe(), "fp32");
  EXPECT_THAT(link.phases, ElementsAre("loading", "evaluating"));
  EXPECT_THAT(link.progress, ElementsAre(1, 2));
  EXPECT_THAT(link.logs, testing::Contains(HasSubstr("step 4 of small: " + held_out_ + ": loss ")));
  EXPECT_TRUE(link.checkpoints.empty());
}

TEST_F(EvalRunTest, RunRank_PausedAndResumed_EvaluatesEachModelOnce) {
  FakeLink whole(EvalTask(), store_);
  ASSERT_EQ(RunTo(whole).reason(), v1::EXIT_REASON_FINISHED);
  FakeLink first(EvalTask(), store_);
  // It looks before a model and before each of its batches: this is in the second model.
  first.AskAt(kBatches + 3, v1::CONTROL_BIT_PAUSE);
  const v1::TrainerExit paused = RunTo(first);
  EXPECT_EQ(paused.reason(), v1::EXIT_REASON_PAUSED) << paused.message();
  EXPECT_EQ(paused.step(), 1);
  ASSERT_EQ(first.steps.size(), 1U);

  v1::Task task = EvalTask();
  task.set_epoch(2);
  task.set_resume_step(1);
  FakeLink second(task, store_);
  EXPECT_EQ(RunTo(second).reason(), v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(second.run_info.start_step(), 1);
  ASSERT_EQ(second.steps.size(), 1U);
  EXPECT_EQ(second.steps[0].step(), 2);
  EXPECT_EQ(second.steps[0].validation_loss(), whole.steps[1].validation_loss());

  task.set_resume_step(2);
  FakeLink third(task, store_);
  EXPECT_EQ(RunTo(third).reason(), v1::EXIT_REASON_FINISHED) << "nothing is left";
  EXPECT_TRUE(third.steps.empty());
}

TEST_F(EvalRunTest, RunRank_Stopped_LeavesWithinTheModel) {
  FakeLink link(EvalTask(), store_);
  link.AskAt(2, v1::CONTROL_BIT_STOP);
  const v1::TrainerExit exit = RunTo(link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_STOPPED);
  EXPECT_TRUE(link.steps.empty());
}

TEST_F(EvalRunTest, RunRank_BadModels_EndTheJobAfterTheGoodOnes) {
  v1::Task task = EvalTask();
  task.mutable_models(1)->set_path("/nowhere/step-00000008");
  FakeLink gone(task, store_);
  const v1::TrainerExit exit = RunTo(gone);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_BAD_DATA);
  EXPECT_THAT(exit.message(), HasSubstr("/nowhere/step-00000008"));
  EXPECT_EQ(gone.steps.size(), 1U);

  v1::Task average = EvalTask();
  average.mutable_spec()->mutable_evaluate()->set_ema(true);
  FakeLink none(average, store_);
  EXPECT_EQ(RunTo(none).reason(), v1::EXIT_REASON_BAD_DATA) << "train.ema was not set";
  EXPECT_TRUE(none.steps.empty());
}

TEST_F(EvalRunTest, RunRank_UnknownTask_IsABadSpec) {
  v1::Task task = EvalTask();
  task.mutable_spec()->set_task("distill");
  FakeLink link(task, store_);
  EXPECT_EQ(RunTo(link).reason(), v1::EXIT_REASON_BAD_SPEC);
  ASSERT_EQ(link.exits.size(), 1U);
  EXPECT_THAT(link.exits[0].message(), HasSubstr("distill"));
}

}  // namespace
}  // namespace hearth::trainer
