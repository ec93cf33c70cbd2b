#include "worker/daemon/task_exit.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::UnixEpoch() + absl::Seconds(1000) + absl::Nanoseconds(5);

TEST(TaskExitTest, MakeTaskExit_TrainerSaidWhy_ThatStands) {
  v1::TrainerExit said;
  said.set_reason(v1::EXIT_REASON_FINISHED);
  said.set_step(10);
  said.set_checkpoint_step(10);
  ExitFacts facts;
  facts.wait_status = -9;  // killed afterwards
  const v1::TaskExit exit = MakeTaskExit(facts, said, 9, 5, kNow);
  EXPECT_EQ(exit.exit().reason(), v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(exit.exit().step(), 10);
  EXPECT_EQ(exit.exit().checkpoint_step(), 10);
  EXPECT_EQ(exit.wait_status(), -9);
  EXPECT_TRUE(exit.clean());
}

TEST(TaskExitTest, MakeTaskExit_Hung_HasAReasonOfItsOwnAndHowLong) {
  ExitFacts facts;
  facts.wait_status = -9;
  facts.hung = "stopped: no heartbeat for 3s, process state T";
  facts.silent = absl::Seconds(3.5);
  const v1::TaskExit exit = MakeTaskExit(facts, std::nullopt, 7, 5, kNow);
  EXPECT_EQ(exit.exit().reason(), v1::EXIT_REASON_HUNG);
  EXPECT_EQ(exit.exit().message(), facts.hung);
  EXPECT_EQ(exit.silent_seconds(), 3.5);
  v1::TrainerExit said;  // it hung on its way out: what it said stands
  said.set_reason(v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(MakeTaskExit(facts, said, 7, 5, kNow).exit().reason(), v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(MakeTaskExit(facts, said, 7, 5, kNow).silent_seconds(), 0.0);
}

TEST(TaskExitTest, MakeTaskExit_Signal_IsKilledWithStepsAndLastWords) {
  ExitFacts facts;
  facts.wait_status = -9;
  facts.clean = false;
  facts.unclean_reason = "still there";
  facts.last_words = "out of memory";
  const v1::TaskExit exit = MakeTaskExit(facts, std::nullopt, 7, 5, kNow);
  EXPECT_EQ(exit.exit().reason(), v1::EXIT_REASON_KILLED);
  EXPECT_THAT(exit.exit().message(), HasSubstr("SIGKILL"));
  EXPECT_THAT(exit.exit().message(), HasSubstr("out of memory"));
  EXPECT_EQ(exit.exit().step(), 7);
  EXPECT_EQ(exit.exit().checkpoint_step(), 5);
  EXPECT_EQ(exit.exit().time().seconds(), 1000);
  EXPECT_EQ(exit.exit().time().nanos(), 5);
  EXPECT_FALSE(exit.clean());
  EXPECT_EQ(exit.unclean_reason(), "still there");
}

TEST(TaskExitTest, MakeTaskExit_SilentEnds_AreInternal) {
  ExitFacts facts;
  facts.wait_status = 3;
  EXPECT_EQ(MakeTaskExit(facts, std::nullopt, 0, 0, kNow).exit().reason(),
            v1::EXIT_REASON_INTERNAL);
  facts.wait_status = 0;
  EXPECT_EQ(MakeTaskExit(facts, std::nullopt, 0, 0, kNow).exit().reason(),
            v1::EXIT_REASON_INTERNAL);
  facts.start_error = "cannot run x";
  EXPECT_EQ(MakeTaskExit(facts, std::nullopt, 0, 0, kNow).exit().message(), "cannot run x");
}

TEST(TaskExitTest, StopGrace_Spec_DefaultsToAMinute) {
  v1::JobSpec spec;
  EXPECT_EQ(StopGrace(spec), absl::Minutes(1));
  spec.mutable_checkpoint()->set_grace_seconds(5);
  EXPECT_EQ(StopGrace(spec), absl::Seconds(5));
}

}  // namespace
}  // namespace hearth::worker
