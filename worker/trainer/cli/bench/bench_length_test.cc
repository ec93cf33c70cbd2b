#include "worker/trainer/cli/bench/bench_length.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "tests/support/common/fake_clock.h"

namespace hearth::trainer {
namespace {

// Steps of warm-up and measurement when a step takes `step`.
std::pair<int, int> Steps(const BenchLength& length, absl::Duration step) {
  FakeClock clock;
  BenchTurns turns(length, clock);
  int steps = 0;
  while (turns.Decide(steps)) {
    clock.Advance(step);
    ++steps;
  }
  return {turns.warm_up_steps(), steps - turns.warm_up_steps()};
}

TEST(BenchTurns, OnGpu_WarmsUpForTwoSecondsAndMeasuresSixtyStepsOrFiveSeconds) {
  const BenchLength gpu{.on_gpu = true, .steps = 0};
  EXPECT_EQ(Steps(gpu, absl::Milliseconds(10)), std::pair(200, 300)) << "3 s, for the watts";
  EXPECT_EQ(Steps(gpu, absl::Milliseconds(80)), std::pair(25, 60));
  EXPECT_EQ(Steps(gpu, absl::Milliseconds(500)), std::pair(4, 10)) << "5 s";
  EXPECT_EQ(Steps(gpu, absl::Seconds(10)), std::pair(3, 1)) << "at least three to warm up, and one";
}

TEST(BenchTurns, StepsAreGiven_AreMeasuredAfterTheSameWarmUp) {
  EXPECT_EQ(Steps({.on_gpu = true, .steps = 7}, absl::Milliseconds(10)), std::pair(200, 7));
  EXPECT_EQ(Steps({.on_gpu = true, .steps = 7}, absl::Seconds(10)), std::pair(3, 7));
}

TEST(BenchTurns, OnCpu_WarmsUpForThreeSteps) {
  EXPECT_EQ(Steps({.on_gpu = false, .steps = 2}, absl::Milliseconds(10)), std::pair(3, 2));
  EXPECT_EQ(Steps({}, absl::Milliseconds(10)), std::pair(3, 60));
  EXPECT_EQ(Steps({}, absl::Seconds(1)), std::pair(3, 5));
}

TEST(BenchTurns, OtherRanks_TakeAsManyStepsAsRank0) {
  FakeClock clock;
  BenchTurns turns({.on_gpu = true, .steps = 0}, clock);
  std::vector<int> steps(3, 0);
  std::vector<std::thread> others;
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    others.emplace_back([&turns, &count = steps[rank]] {
      while (turns.Await(count)) {
        ++count;
      }
    });
  }
  int decided = 0;
  while (turns.Decide(decided)) {
    clock.Advance(absl::Milliseconds(100));
    ++decided;
  }
  for (std::thread& other : others) {
    other.join();
  }
  EXPECT_EQ(decided, 20 + 50);
  EXPECT_EQ(steps, std::vector<int>(3, decided));
}

}  // namespace
}  // namespace hearth::trainer
