#include "common/time/clock.h"

#include <thread>

#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"

namespace hearth {
namespace {

TEST(RealClock, Monotonic_TwoReadings_DoNotGoBack) {
  const absl::Duration first = Clock::Real().Monotonic();
  EXPECT_GE(Clock::Real().Monotonic(), first);
  EXPECT_GT(Clock::Real().Now(), absl::FromUnixSeconds(1'600'000'000));
}

TEST(RealClock, AwaitWithTimeout_ConditionNeverTrue_ReturnsFalseAfterTheTimeout) {
  absl::Mutex mu;
  bool flag = false;
  const absl::Duration start = Clock::Real().Monotonic();
  absl::MutexLock lock(&mu);
  EXPECT_FALSE(Clock::Real().AwaitWithTimeout(mu, absl::Condition(&flag), absl::Milliseconds(20)));
  EXPECT_GE(Clock::Real().Monotonic() - start, absl::Milliseconds(20));
}

TEST(RealClock, AwaitWithTimeout_ConditionBecomesTrue_ReturnsTrue) {
  absl::Mutex mu;
  bool flag = false;
  std::thread setter([&] {
    absl::MutexLock lock(&mu);
    flag = true;
  });
  {
    absl::MutexLock lock(&mu);
    EXPECT_TRUE(Clock::Real().AwaitWithTimeout(mu, absl::Condition(&flag), absl::Minutes(1)));
  }
  setter.join();
}

TEST(FakeClock, Advance_OneHour_MovesBothTimes) {
  FakeClock clock(absl::FromUnixSeconds(1000));
  clock.Advance(absl::Hours(1));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(4600));
  EXPECT_EQ(clock.Monotonic(), absl::Hours(1));
}

TEST(FakeClock, JumpWall_Backwards_LeavesMonotonicAlone) {
  FakeClock clock(absl::FromUnixSeconds(1000));
  clock.JumpWall(-absl::Seconds(400));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(600));
  EXPECT_EQ(clock.Monotonic(), absl::ZeroDuration());
}

TEST(FakeClock, AwaitWithTimeout_AdvancePastTheDeadline_ReturnsFalse) {
  FakeClock clock;
  absl::Mutex mu;
  bool flag = false;
  bool result = true;
  std::thread waiter([&] {
    absl::MutexLock lock(&mu);
    result = clock.AwaitWithTimeout(mu, absl::Condition(&flag), absl::Hours(1));
  });
  clock.AwaitWaiters(1);
  clock.Advance(absl::Hours(1));
  waiter.join();
  EXPECT_FALSE(result);
}

TEST(FakeClock, AwaitWithTimeout_ConditionHolds_ReturnsTrueWithoutAdvance) {
  FakeClock clock;
  absl::Mutex mu;
  bool flag = false;
  bool result = false;
  std::thread waiter([&] {
    absl::MutexLock lock(&mu);
    result = clock.AwaitWithTimeout(mu, absl::Condition(&flag), absl::Hours(1));
  });
  clock.AwaitWaiters(1);
  {
    absl::MutexLock lock(&mu);
    flag = true;
  }
  waiter.join();
  EXPECT_TRUE(result);
}

}  // namespace
}  // namespace hearth
