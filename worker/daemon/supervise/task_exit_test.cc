#include "worker/daemon/supervise/task_exit.h"

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

TEST(TaskExitTest, MakeTaskDying_GoodEndByItsOwnWord_IsNone) {
  ExitFacts facts;
  facts.wait_status = -9;
  v1::TrainerExit said;
  for (const auto reason :
       {v1::EXIT_REASON_FINISHED, v1::EXIT_REASON_STOPPED, v1::EXIT_REASON_PAUSED}) {
    said.set_reason(reason);
    EXPECT_FALSE(MakeTaskDying(facts, true, absl::Seconds(1), said, 9, kNow).has_value());
  }
  said.set_reason(v1::EXIT_REASON_DEVICE);
  said.set_message("out of memory");
  const auto dying = MakeTaskDying(facts, false, absl::Seconds(1), said, 9, kNow);
  ASSERT_TRUE(dying.has_value());
  EXPECT_EQ(dying->exit().reason(), v1::EXIT_REASON_DEVICE);
  EXPECT_EQ(dying->exit().message(), "out of memory");
  EXPECT_EQ(dying->exit().step(), 9);
}

TEST(TaskExitTest, MakeTaskDying_SaysWhatIsKnownAndSinceWhen) {
  ExitFacts facts;
  const auto unknown = MakeTaskDying(facts, false, absl::Seconds(0.5), std::nullopt, 9, kNow);
  EXPECT_EQ(unknown->exit().reason(), v1::EXIT_REASON_UNSPECIFIED);
  EXPECT_THAT(unknown->exit().message(), HasSubstr("not known yet"));
  EXPECT_EQ(unknown->seconds(), 0.5);
  facts.wait_status = -9;
  const auto killed = MakeTaskDying(facts, true, absl::Seconds(0.5), std::nullopt, 9, kNow);
  EXPECT_EQ(killed->exit().reason(), v1::EXIT_REASON_KILLED);
  EXPECT_THAT(killed->exit().message(), HasSubstr("SIGKILL"));
  facts.hung = "stopped";
  facts.silent = absl::Seconds(3);
  const auto hung = MakeTaskDying(facts, true, absl::Seconds(0.5), std::nullopt, 9, kNow);
  EXPECT_EQ(hung->exit().reason(), v1::EXIT_REASON_HUNG);
  EXPECT_EQ(hung->seconds(), 3.5);
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
