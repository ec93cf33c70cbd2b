#include "worker/trainer/rank/evaluation/evaluation_duty.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/one_rank.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int64_t> DueSteps(bool held_out) {
  v1::JobSpec spec;
  spec.mutable_train()->set_steps(10);
  spec.mutable_train()->set_eval_every(4);
  OneRank one(spec);
  EvaluationDuty duty(one.rank);
  EXPECT_TRUE(duty.Open(held_out, "").ok());
  std::vector<int64_t> due;
  for (int64_t step = 1; step <= 10; ++step) {
    if (duty.Due(step)) {
      due.push_back(step);
    }
  }
  return due;
}

TEST(EvaluationDutyTest, Due_AfterTheFirst_EachInterval_AndTheLast) {
  EXPECT_THAT(DueSteps(true), ElementsAre(1, 4, 8, 10));
}

TEST(EvaluationDutyTest, Due_WithoutHeldOutData_Never) {
  EXPECT_THAT(DueSteps(false), IsEmpty());
}

// A loss belongs to the weights that it was measured of, and to no later ones.
TEST(EvaluationDutyTest, LossOf_IsThatOfItsOwnStep) {
  const TempDir data;
  v1::JobSpec spec = SmallJob(data.path());
  spec.mutable_train()->set_eval_every(3);
  OpenRank one(spec);
  EvaluationDuty duty(one.rank);
  ASSERT_TRUE(duty.Open(true, "").ok());
  one.Step();
  const auto first = duty.EvaluateIfDue(one.session.trainer(), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->has_value());
  EXPECT_GT(**first, 0);
  EXPECT_EQ(duty.LossOf(1), **first);
  EXPECT_THAT(one.link.phases, ElementsAre("evaluating", "training"));
  EXPECT_THAT(one.link.logs, ElementsAre(testing::StartsWith("info: step 1: held-out loss")));
  one.Step();
  const auto second = duty.EvaluateIfDue(one.session.trainer(), 2);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(second->has_value()) << "not due";
  EXPECT_EQ(duty.LossOf(2), 0);
  EXPECT_EQ(one.link.phases.size(), 2U) << "nothing was evaluated";
}

}  // namespace
}  // namespace hearth::trainer
