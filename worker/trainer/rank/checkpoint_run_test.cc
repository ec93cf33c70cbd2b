// A rank's life with a disk that is slower than its checkpoints are due.
#include <functional>
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
      : FakeLink(std::move(task), store), env_(env), step_(step) {}
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

TEST(CheckpointRunTest, SlowDisk_StepsGoOnAndDueCheckpointsAreSkipped) {
  const TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_train()->set_steps(9);
  spec.mutable_checkpoint()->set_every_steps(2);
  LocalKeyValueStore store;
  SlowEnv env;
  // Were a step to wait for the checkpoint of step 2, step 7 would never come.
  ReleasingLink link(MakeTask(spec, dir.path() + "/c"), store, env, 7);
  RankOptions options;
  options.link = &link;
  options.env = &env;
  options.checkpoint_patience = absl::ZeroDuration();
  const v1::TrainerExit exit = RunRank(options);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_FINISHED) << exit.message();
  EXPECT_EQ(link.steps.size(), 9U);
  EXPECT_EQ(StepsOf(link).front(), 2);
  EXPECT_EQ(StepsOf(link).back(), 9);  // the last one waits
  EXPECT_THAT(link.logs, Contains(HasSubstr("warning: no checkpoint of step 4:")));
  EXPECT_THAT(link.logs, Contains(HasSubstr("warning: no checkpoint of step 6:")));
}

// Rank 1 has soon written its part and could begin the next, which rank 0 skips.
TEST(CheckpointRunTest, SlowDiskOfOneRank_AllSkipTheSameCheckpoints) {
  const TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_train()->set_steps(9);
  spec.mutable_checkpoint()->set_every_steps(2);
  spec.mutable_parallel()->set_shard_optimizer("on");
  LocalKeyValueStore store;
  SlowEnv env;
  ReleasingLink leader(MakeTask(spec, dir.path() + "/c", 0, 2), store, env, 7);
  FakeLink other(MakeTask(spec, dir.path() + "/c", 1, 2), store);
  const auto run = [](Link& link, Env& of_rank) {
    RankOptions options;
    options.link = &link;
    options.env = &of_rank;
    options.checkpoint_patience = absl::ZeroDuration();
    return RunRank(options);
  };
  v1::TrainerExit other_exit;
  std::thread thread([&] { other_exit = run(other, Env::Real()); });
  const v1::TrainerExit exit = run(leader, env);
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

TEST(CheckpointRunTest, SlowDisk_PauseWaitsForItsCheckpoint) {
  const TempDir dir;
  v1::JobSpec spec = SmallJob(dir.path());
  spec.mutable_train()->set_steps(9);
  spec.mutable_checkpoint()->set_every_steps(2);
  LocalKeyValueStore store;
  SlowEnv env;
  ReleasingLink link(MakeTask(spec, dir.path() + "/c"), store, env, 3);
  link.AskAt(3, v1::CONTROL_BIT_PAUSE);
  RankOptions options;
  options.link = &link;
  options.env = &env;
  options.checkpoint_patience = absl::ZeroDuration();
  const v1::TrainerExit exit = RunRank(options);
  EXPECT_EQ(exit.reason(), v1::EXIT_REASON_PAUSED) << exit.message();
  EXPECT_EQ(exit.checkpoint_step(), 3);
  EXPECT_THAT(StepsOf(link), ElementsAre(2, 3));
}

}  // namespace
}  // namespace hearth::trainer
