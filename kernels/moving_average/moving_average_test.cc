#include "kernels/moving_average/moving_average.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace hearth::kernels {
namespace {

TEST(MovingAverage, StepByStep_IsTheWeightedMeanOfAll) {
  constexpr double kDecay = 0.9;
  constexpr int kSteps = 40;
  double y = 123.0;  // nothing stays of what was there before the first step
  MovingAverageArgs args;
  double x = 0.0;
  args.x = View(&x, {1});
  args.y = View(&y, {1});
  args.decay = kDecay;
  for (int t = 1; t <= kSteps; ++t) {
    x = std::sin(t);
    args.step = t;
    ASSERT_TRUE(MovingAverage(Exec(), args).ok());
    double sum = 0.0;
    double weights = 0.0;
    for (int i = 1; i <= t; ++i) {
      sum += std::pow(kDecay, t - i) * std::sin(i);
      weights += std::pow(kDecay, t - i);
    }
    ASSERT_NEAR(y, sum / weights, 1e-14) << t;
  }
}

TEST(MovingAverage, DecayOrTypes_OutOfRange_AreRefused) {
  float x[2] = {};
  float y[2] = {};
  MovingAverageArgs args;
  args.x = View(x, {2});
  args.y = View(y, {2});
  for (const double decay : {0.0, 1.0, -0.5, std::nan("")}) {
    args.decay = decay;
    EXPECT_EQ(MovingAverage(Exec(), args).code(), absl::StatusCode::kInvalidArgument) << decay;
  }
  args.decay = 0.5;
  args.step = 0;
  EXPECT_EQ(MovingAverage(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
  args.step = 1;
  args.x = View(x, {1});
  EXPECT_EQ(MovingAverage(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
