#include "common/spec/schedule/schedule.h"

#include <cmath>

#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

Schedule Make(ScheduleKind kind, int64_t total, int64_t warmup, int64_t decay, double min_ratio) {
  return {.kind = kind,
          .peak = 3e-4,
          .total_steps = total,
          .warmup_steps = warmup,
          .decay_steps = decay,
          .min_lr_ratio = min_ratio};
}

TEST(LearningRateTest, WarmUp_200StepsTo3e4_IsLinear) {
  for (const ScheduleRow& row : Schedules()) {
    const Schedule schedule = Make(row.kind, 1000, 200, 100, 0.0);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 90), 1.35e-4) << row.name;
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 160), 2.40e-4) << row.name;
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 200), 3e-4) << row.name;
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 1.5e-6) << row.name;
  }
}

TEST(MakeScheduleTest, DecayShape_IsTheOneThatTheJobNames) {
  ASSERT_EQ(DecayShapeNames(), (std::vector<std::string_view>{"linear", "sqrt"}));
  v1::JobSpec job;
  EXPECT_EQ(MakeSchedule(job).decay_shape, DecayShape::kLinear);
  job.mutable_schedule()->set_decay_shape("sqrt");
  EXPECT_EQ(MakeSchedule(job).decay_shape, DecayShape::kSqrt);
  job.mutable_schedule()->set_decay_shape("linear");
  EXPECT_EQ(MakeSchedule(job).decay_shape, DecayShape::kLinear);
}

TEST(LearningRateTest, NoWarmUp_FirstStep_IsAtThePeak) {
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleKind::kWsd, 1000, 0, 200, 0.0), 1), 3e-4);
  EXPECT_DOUBLE_EQ(LearningRate(Make(ScheduleKind::kConstant, 1000, 0, 0, 0.0), 1), 3e-4);
}

TEST(LearningRateTest, Wsd_Linear_IsFlatThenStraightToTheMinimum) {
  const Schedule schedule = Make(ScheduleKind::kWsd, 1000, 100, 200, 0.1);
  for (int64_t step : {101, 500, 800}) {
    EXPECT_DOUBLE_EQ(LearningRate(schedule, step), 3e-4) << step;
  }
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 900), 3e-4 * (0.1 + 0.9 * 0.5));
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1000), 3e-5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5000), 3e-5);
}

TEST(LearningRateTest, Wsd_Sqrt_FollowsOneMinusRoot) {
  Schedule schedule = Make(ScheduleKind::kWsd, 1000, 0, 400, 0.0);
  schedule.decay_shape = DecayShape::kSqrt;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 700), 3e-4 * (1.0 - std::sqrt(0.25)));
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1000), 0.0);
}

TEST(LearningRateTest, Cosine_HalfWay_IsTheMeanOfPeakAndMinimum) {
  const Schedule schedule = Make(ScheduleKind::kCosine, 1100, 100, 1000, 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 600), 3e-4 * 0.55);
  EXPECT_NEAR(LearningRate(schedule, 350), 3e-4 * (0.1 + 0.45 * (1.0 + std::cos(M_PI / 4))), 1e-18);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1100), 3e-5);
}

TEST(LearningRateTest, Linear_DecayShorterThanTheRun_StaysAtTheMinimum) {
  const Schedule schedule = Make(ScheduleKind::kLinear, 1000, 0, 500, 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 250), 3e-4 * 0.6);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 500), 3e-4 * 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1000), 3e-4 * 0.2);
}

TEST(LearningRateTest, Constant_AfterWarmUp_IsThePeak) {
  const Schedule schedule = Make(ScheduleKind::kConstant, 1000, 10, 500, 0.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1000), 3e-4);
}

TEST(LearningRateTest, AllRows_EveryStep_StayBetweenZeroAndThePeakAndFallAfterWarmUp) {
  for (const ScheduleRow& row : Schedules()) {
    const Schedule schedule = Make(row.kind, 300, 30, 100, 0.05);
    for (int64_t step = 1; step <= 300; ++step) {
      const double lr = LearningRate(schedule, step);
      EXPECT_GE(lr, 0.0) << row.name << ' ' << step;
      EXPECT_LE(lr, 3e-4 * (1 + 1e-15)) << row.name << ' ' << step;
      if (step > 31) {
        EXPECT_LE(lr, LearningRate(schedule, step - 1)) << row.name << ' ' << step;
      }
    }
  }
}

TEST(MakeScheduleTest, Spec_AllFields_AreTaken) {
  v1::JobSpec job;
  job.mutable_train()->set_steps(1000);
  job.mutable_optimizer()->set_lr(1e-3);
  job.mutable_schedule()->set_name("linear");
  job.mutable_schedule()->set_warmup_steps(10);
  job.mutable_schedule()->set_decay_steps(990);
  EXPECT_DOUBLE_EQ(LearningRate(job, 505), 0.5e-3);
}

}  // namespace
}  // namespace hearth::spec
