#include "worker/daemon/supervise/task_runner.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/daemon/fake_trainer_host.h"

namespace hearth::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Task TaskOf(const std::string& job, int64_t epoch, int32_t grace_seconds = 7) {
  v1::Task task;
  task.set_job_id(job);
  task.set_epoch(epoch);
  task.mutable_spec()->mutable_checkpoint()->set_grace_seconds(grace_seconds);
  return task;
}

v1::FromTrainer Step(int64_t step) {
  v1::FromTrainer message;
  message.mutable_step()->set_step(step);
  return message;
}

class TaskRunnerTest : public ::testing::Test {
 protected:
  TaskRunnerTest()
      : root_(std::make_unique<CheckpointRoot>(*CheckpointRoot::Open(temp_.path()))),
        runner_(TaskRunner::Options(), *root_, clock_) {
    runner_.Attach(host_);
  }

  FakeClock clock_;
  const TempDir temp_;
  FakeTrainerHost host_;
  std::unique_ptr<CheckpointRoot> root_;
  TaskRunner runner_;
};

TEST_F(TaskRunnerTest, Admit_DoesNotStart_UntilTheCallerSaysThatTheDeviceIsFree) {
  EXPECT_TRUE(runner_.Admit(TaskOf("job", 1), /*stopping=*/false));
  EXPECT_THAT(host_.TakeCalls(), IsEmpty());
  EXPECT_FALSE(runner_.lives());
  EXPECT_EQ(runner_.JobHere(), "job");
  runner_.StartPending();
  runner_.StartPending();
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1"));
  EXPECT_TRUE(runner_.lives());
  EXPECT_EQ(runner_.snapshot(0.0).tasks_started, 1);
}

TEST_F(TaskRunnerTest, Admit_SaidTwiceOrStopping_IsFalse) {
  EXPECT_TRUE(runner_.Admit(TaskOf("job", 1), /*stopping=*/false));
  EXPECT_FALSE(runner_.Admit(TaskOf("job", 1), /*stopping=*/false));
  EXPECT_THAT(runner_.snapshot(0.0).exits, IsEmpty());
  EXPECT_FALSE(runner_.Admit(TaskOf("late", 1), /*stopping=*/true));
  EXPECT_EQ(runner_.snapshot(0.0).exits.at(v1::EXIT_REASON_ABORTED), 1);
  runner_.StartPending();
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1"));
}

TEST_F(TaskRunnerTest, WordsOfATrainer_WhoseTaskIsNotHere_ChangeNothing) {
  EXPECT_TRUE(runner_.Admit(TaskOf("job", 2), /*stopping=*/false));
  runner_.StartPending();
  EXPECT_FALSE(runner_.Take({"job", 1}, Step(5), DeviceReading()));
  EXPECT_FALSE(runner_.TakeOutput({"other", 2}, "info", "text"));
  EXPECT_FALSE(runner_.ReportDying({"job", 1}, ExitFacts(), true, absl::Seconds(1)));
  EXPECT_EQ(runner_.snapshot(0.0).step, 0);
  EXPECT_TRUE(runner_.Take({"job", 2}, Step(5), DeviceReading()));
  EXPECT_EQ(runner_.snapshot(0.0).step, 5);
}

TEST_F(TaskRunnerTest, StopAll_OnePendingAndOneThatLives_GraceIsThatOfTheOneThatLives) {
  EXPECT_TRUE(runner_.Admit(TaskOf("job", 1, 7), /*stopping=*/false));
  runner_.StartPending();
  EXPECT_TRUE(runner_.Admit(TaskOf("job", 2, 9), /*stopping=*/false));
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1", "kill job e1 0"));
  EXPECT_EQ(runner_.StopAll(), absl::Seconds(7));
  EXPECT_THAT(host_.TakeCalls(),
              ElementsAre("send job e1 control { bit: CONTROL_BIT_STOP }", "kill job e1 7s"));
  EXPECT_EQ(runner_.snapshot(0.0).exits.at(v1::EXIT_REASON_KILLED), 1);
}

TEST_F(TaskRunnerTest, End_AllAcknowledged_LeavesNothing) {
  EXPECT_TRUE(runner_.delivered());
  EXPECT_TRUE(runner_.Admit(TaskOf("job", 1), /*stopping=*/false));
  runner_.StartPending();
  EXPECT_FALSE(runner_.delivered());
  runner_.End({"job", 1}, ExitFacts());
  EXPECT_FALSE(runner_.lives());
  EXPECT_EQ(runner_.JobHere(), "");
  EXPECT_FALSE(runner_.delivered());  // its exit is not acknowledged
  v1::Hello hello;
  runner_.BeginSession(hello);
  EXPECT_EQ(hello.tasks_size(), 1);
  ASSERT_TRUE(runner_.NextMessage().has_value());
  EXPECT_FALSE(runner_.NextMessage().has_value());
  v1::ReportAck ack;
  ack.set_job_id("job");
  ack.set_epoch(1);
  ack.set_seq(1);
  runner_.Ack(ack);
  EXPECT_TRUE(runner_.delivered());
  v1::Hello next;
  runner_.BeginSession(next);
  EXPECT_EQ(next.tasks_size(), 0);
}

}  // namespace
}  // namespace hearth::worker
