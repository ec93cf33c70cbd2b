#include "worker/daemon/supervise/silence.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

constexpr absl::Duration kAlmost = absl::Milliseconds(1);

TEST(TooSilent, Stopped_AfterThreeSeconds) {
  const SilenceLimits limits;
  EXPECT_EQ(TooSilent(limits, absl::Seconds(3) - kAlmost, true, 'T'), "");
  EXPECT_EQ(TooSilent(limits, absl::Seconds(3), true, 'T'),
            "stopped: no heartbeat for 3s, process state T");
  EXPECT_NE(TooSilent(limits, absl::Seconds(3), false, 'T'), "") << "also before its first word";
}

TEST(TooSilent, AnyOtherState_AfterFifteenSeconds) {
  const SilenceLimits limits;
  for (const char state : {'t', 'S', 'D', 'R'}) {
    EXPECT_EQ(TooSilent(limits, absl::Seconds(15) - kAlmost, true, state), "") << state;
    EXPECT_EQ(TooSilent(limits, absl::Seconds(15), true, state),
              std::string("hung: no heartbeat for 15s, process state ") + state);
  }
}

TEST(TooSilent, BeforeTheFirstWord_HasAMinute) {
  const SilenceLimits limits;
  EXPECT_EQ(TooSilent(limits, absl::Seconds(59), false, 'D'), "");
  EXPECT_NE(TooSilent(limits, absl::Minutes(1), false, 'D'), "");
}

TEST(TooSilent, EndedOrSwitchedOff_Never) {
  SilenceLimits limits;
  EXPECT_EQ(TooSilent(limits, absl::Hours(1), true, 'Z'), "");
  EXPECT_EQ(TooSilent(limits, absl::Hours(1), true, '\0'), "");
  limits.silence = absl::InfiniteDuration();
  EXPECT_EQ(TooSilent(limits, absl::Hours(1), true, 'T'), "");
  EXPECT_FALSE(WorthALook(limits, absl::Hours(1)));
}

TEST(WorthALook, BelowEveryLimit_IsNot) {
  const SilenceLimits limits;
  EXPECT_FALSE(WorthALook(limits, absl::Seconds(2)));
  EXPECT_TRUE(WorthALook(limits, absl::Seconds(3)));
}

TEST(LooksDying, ByStateOrFlag) {
  const auto stat = [](char state, bool exiting) {
    ProcessStat out;
    out.state = state;
    out.exiting = exiting;
    return out;
  };
  EXPECT_TRUE(LooksDying(stat('Z', false)));
  EXPECT_TRUE(LooksDying(stat('X', false)));
  EXPECT_TRUE(LooksDying(stat('D', true)));
  EXPECT_FALSE(LooksDying(stat('D', false)));
  EXPECT_FALSE(LooksDying(stat('T', false)));
}

TEST(DeathWatch, SlowDeath_IsNoticedOnceFromItsFirstSign) {
  DeathWatch watch;
  const absl::Duration t = absl::Seconds(100);
  EXPECT_TRUE(watch.LookIsDue(t));
  EXPECT_FALSE(watch.LookIsDue(t + kAlmost)) << "not for every message of the trainer";
  EXPECT_TRUE(watch.LookIsDue(t + DeathWatch::kLook));
  EXPECT_FALSE(watch.NoticeIsDue(t + absl::Hours(1)));
  EXPECT_EQ(watch.For(t), absl::ZeroDuration());
  watch.Dying(t);
  watch.Dying(t + absl::Milliseconds(200));
  EXPECT_FALSE(watch.LookIsDue(t + absl::Hours(1))) << "nothing more to be seen";
  EXPECT_FALSE(watch.NoticeIsDue(t + DeathWatch::kPatience - kAlmost));
  EXPECT_TRUE(watch.NoticeIsDue(t + DeathWatch::kPatience));
  EXPECT_EQ(watch.For(t + DeathWatch::kPatience), DeathWatch::kPatience);
  EXPECT_FALSE(watch.NoticeIsDue(t + absl::Hours(1)));
}

}  // namespace
}  // namespace hearth::worker
