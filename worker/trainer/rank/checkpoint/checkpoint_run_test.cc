// A rank's life with a disk that is slower than its checkpoints are due.
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/io/faulty_env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_link.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Checkpoints stay in the writing until the disk is let go.
class SlowEnv : public FaultyEnv {
 public:
  SlowEnv() : FaultyEnv(Env::Real()) {}
  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    go.WaitForNotification();
    return FaultyEnv::NewWritableFile(path);
  }
  absl::Notification go;
};

// Lets the disk go when step `step` is reported.
class ReleasingLink : public FakeLink {
 public:
  ReleasingLink(v1::Task task, KeyValueStore& store, SlowEnv& env, int64_t step)
      : FakeLink(std::move(task), store), env_(env), step_(step) {
    AskForDue(false);
  }
  void SendStep(const v1::StepReport& report) override {
    FakeLink::SendStep(report);
    if (report.step() == step_) {
      env_.go.Notify();
    }
  }

 private:
  SlowEnv& env_;
  const int64_t step_;
};

std::vector<int64_t> StepsOf(const FakeLink& link) {
  std::vector<int64_t> steps;
  for (const v1::CheckpointAnnouncement& checkpoint : link.checkpoints) {
    steps.push_back(checkpoint.step());
  }
  return steps;
}

// Nine steps, and a checkpoint every second one.
v1::JobSpec NineSteps(const TempDir& dir) {
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_train()->set_steps(9);
  spec.mutable_checkpoint()->set_every_steps(2);
  return spec;
}

v1::TrainerExit RunOn(Env& env, Link& link) {
  RankOptions options;
  options.link = &link;
  options.env = &env;
  return RunRank(options);
}

// The nine steps on a slow disk.
class SlowDiskTest : public testing::Test {
 protected:
  v1::Task Task(int rank = 0, int world_size = 1) const {
    return MakeTask(spec_, dir_.path() + "/c", rank, world_size);
  }

  const TempDir dir_;
  v1::JobSpec spec_ = NineSteps(dir_);
  LocalKeyValueStore store_;
  SlowEnv env_;
};

TEST_F(SlowDiskTest, StepsGoOnAndDueCheckpointsAreSkipped) {
  // Were a step to wait for the checkpoint of step 2, step 7 would never come.
  ReleasingLink link(Task(), store_, env_, 7);
  const v1::TrainerExit exit = RunOn(env_, link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  EXPECT_EQ(link.steps.size(), 9U);
  EXPECT_EQ(StepsOf(link).front(), 2);
  EXPECT_EQ(StepsOf(link).back(), 9);  // the last one waits
  EXPECT_THAT(link.logs, Contains(HasSubstr("warning: no checkpoint of step 4:")));
  EXPECT_THAT(link.logs, Contains(HasSubstr("warning: no checkpoint of step 6:")));
  EXPECT_EQ(link.steps[2].skipped_checkpoints(), 0);
  EXPECT_EQ(link.steps[6].skipped_checkpoints(), 2);
}

// Rank 1 has soon written its part and could begin the next, which rank 0 skips.
TEST_F(SlowDiskTest, OfOneRank_AllSkipTheSameCheckpoints) {
  spec_.mutable_parallel()->set_shard("optimizer");
  ReleasingLink leader(Task(0, 2), store_, env_, 7);
  FakeLink other(Task(1, 2), store_);
  v1::TrainerExit other_exit;
  std::thread thread([&] { other_exit = RunOn(Env::Real(), other); });
  const v1::TrainerExit exit = RunOn(env_, leader);
  thread.join();
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  EXPECT_EQ(other_exit.reason(), v1::EXIT_REASON_FINISHED) << other_exit.message();
  EXPECT_EQ(StepsOf(leader).front(), 2);
  EXPECT_EQ(StepsOf(leader).back(), 9);
  for (const FakeLink* link : {static_cast<const FakeLink*>(&leader), &std::as_const(other)}) {
    EXPECT_THAT(link->logs, Contains(HasSubstr("warning: no checkpoint of step 4:")));
    EXPECT_THAT(link->logs, Contains(HasSubstr("warning: no checkpoint of step 6:")));
  }
}

// Bytes of the files under `dir` by their paths in it, without those that say when or by whom the
// checkpoint was written.
std::map<std::string, std::string> FilesOf(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    const std::string name = std::filesystem::relative(entry.path(), dir);
    if (entry.is_regular_file() && name != "MANIFEST.json") {
      files[name] = *Env::Real().ReadFile(entry.path());
    }
  }
  return files;
}

TEST(CheckpointRunTest, TakenBesideRunningSteps_EqualsTheOneOfARunThatStopsThere) {
  for (const char* recipe : {"bf16", "fp8"}) {
    SCOPED_TRACE(recipe);
    const TempDir dir;
    v1::JobSpec spec = SmallJob(dir.path(), "qwen3");
    spec.mutable_precision()->set_recipe(recipe);
    spec.mutable_model()->set_dropout(0.1);
    spec.mutable_model()->set_head_dim(8);  // FP8 wants multiples of 16
    spec.mutable_model()->set_ffn_hidden(32);
    spec.mutable_train()->set_deterministic("true");
    spec.mutable_train()->set_steps(9);
    spec.mutable_checkpoint()->set_every_steps(3);
    LocalKeyValueStore store;
    SlowEnv env;
    // Its writing begins when five more steps are done.
    ReleasingLink beside(MakeTask(spec, dir.path() + "/beside"), store, env, 8);
    RankOptions options;
    options.link = &beside;
    options.env = &env;
    ASSERT_EQ(RunRank(options).reason(), v1::EXIT_REASON_FINISHED);
    ASSERT_EQ(StepsOf(beside).front(), 3);

    FakeLink stops(MakeTask(spec, dir.path() + "/stops"), store);
    stops.AskAt(3, v1::CONTROL_BIT_PAUSE);
    ASSERT_EQ(RunTo(stops).reason(), v1::EXIT_REASON_PAUSED);
    ASSERT_THAT(StepsOf(stops), ElementsAre(3));

    const auto want = FilesOf(stops.checkpoints[0].path());
    EXPECT_EQ(want.count("model.safetensors"), 1U);
    EXPECT_EQ(want.count("state/tensors.safetensors"), 1U);
    EXPECT_TRUE(FilesOf(beside.checkpoints[0].path()) == want);
    EXPECT_FALSE(FilesOf(beside.checkpoints.back().path()) == want);
  }
}

TEST(CheckpointRunTest, Resumed_EveryReportHasTheTimeToResume) {
  const TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_train()->set_steps(4);
  spec.mutable_checkpoint()->set_every_steps(2);
  LocalKeyValueStore store;
  FakeLink first(MakeTask(spec, dir.path() + "/first"), store);
  ASSERT_EQ(RunTo(first).reason(), v1::EXIT_REASON_FINISHED);
  ASSERT_THAT(StepsOf(first), ElementsAre(2, 4));
  v1::Task task = MakeTask(spec, dir.path() + "/second");
  task.set_resume_path(first.checkpoints[0].path());
  task.set_resume_step(2);
  FakeLink second(task, store);
  ASSERT_EQ(RunTo(second).reason(), v1::EXIT_REASON_FINISHED);
  for (const v1::StepReport& step : first.steps) {
    EXPECT_EQ(step.resume_seconds(), 0);
    EXPECT_EQ(step.skipped_checkpoints(), 0);
  }
  ASSERT_EQ(second.steps.size(), 2U);
  EXPECT_GT(second.steps[0].resume_seconds(), 0);
  EXPECT_EQ(second.steps[1].resume_seconds(), second.steps[0].resume_seconds());
}

TEST_F(SlowDiskTest, PauseWaitsForItsCheckpoint) {
  ReleasingLink link(Task(), store_, env_, 3);
  link.AskAt(3, v1::CONTROL_BIT_PAUSE);
  const v1::TrainerExit exit = RunOn(env_, link);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_PAUSED) << exit.message();
  EXPECT_EQ(exit.checkpoint_step(), 3);
  EXPECT_THAT(StepsOf(link), ElementsAre(2, 3));
}

}  // namespace
}  // namespace hearth::trainer
