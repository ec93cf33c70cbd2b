#include "worker/trainer/step/recent_times.h"

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

TEST(RecentTimes, Median_FewSteps_IsNotKnown) {
  RecentTimes times;
  for (size_t i = 1; i < RecentTimes::kLeast; ++i) {
    times.Add(1.0);
    times.Add(0.0);
  }
  EXPECT_EQ(times.Median(), 0.0);
  times.Add(1.0);
  EXPECT_EQ(times.Median(), 1.0);
}

TEST(RecentTimes, Median_OneLongStep_CountsAsOne) {
  RecentTimes times;
  for (const double seconds : {0.2, 9.0, 0.1, 0.3, 0.2}) {
    times.Add(seconds);
  }
  EXPECT_EQ(times.Median(), 0.2);
}

TEST(RecentTimes, Median_AfterAWindow_KnowsNewStepsAlone) {
  RecentTimes times;
  for (size_t i = 0; i < RecentTimes::kWindow; ++i) {
    times.Add(1.0);
  }
  for (size_t i = 0; i < RecentTimes::kWindow; ++i) {
    EXPECT_EQ(times.Median(), i <= RecentTimes::kWindow / 2 - 1 ? 1.0 : times.Median());
    times.Add(2.0);
  }
  EXPECT_EQ(times.Median(), 2.0);
}

}  // namespace
}  // namespace hearth::trainer
