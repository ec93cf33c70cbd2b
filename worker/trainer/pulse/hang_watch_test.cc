#include "worker/trainer/pulse/hang_watch.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

class HangWatchTest : public testing::Test {
 protected:
  // Looks until something is seen, for at most `longest`; the time it took, infinite = nothing.
  absl::Duration SeenAfter(HangWatch& watch, absl::Duration longest) {
    const absl::Duration start = now_;
    while (now_ - start <= longest) {
      seen_ = watch.Look(pulse_.Read(), now_);
      if (!seen_.empty()) {
        return now_ - start;
      }
      now_ += HangWatch::kPeriod;
    }
    return absl::InfiniteDuration();
  }

  HangWatchTest() { pulse_.StepDone(1, absl::Milliseconds(10)); }

  Pulse pulse_;
  HangLimits limits_;
  absl::Duration now_ = absl::Hours(1);
  std::string seen_;
};

TEST_F(HangWatchTest, Look_ShortStepStandsStill_SeenAfterTheLeastTime) {
  HangWatch watch(limits_, nullptr);
  pulse_.StepDone(7, absl::Milliseconds(10));
  pulse_.Begin(Activity::kStep, "launching a step");
  const absl::Duration after = SeenAfter(watch, absl::Minutes(1));
  EXPECT_GT(after, limits_.least);
  EXPECT_LE(after, limits_.least + 3 * HangWatch::kPeriod);
  EXPECT_TRUE(absl::StrContains(seen_, "after step 7 (launching a step; a step takes 0.01 s)"))
      << seen_;
}

TEST_F(HangWatchTest, Look_NoStepIsDoneYet_GetsTheTimeOfTheFirst) {
  Pulse fresh;
  fresh.Begin(Activity::kPreparing, "the first step of its kind");
  fresh.Begin(Activity::kStep, "the second, launched behind it");
  EXPECT_EQ(Allowance(limits_, fresh.Read()), absl::Minutes(10));
  fresh.StepDone(1, absl::Seconds(20));
  EXPECT_EQ(Allowance(limits_, fresh.Read()), absl::Minutes(1));
}

TEST_F(HangWatchTest, Look_LongSteps_SeenAfterThreeOfThem) {
  HangWatch watch(limits_, nullptr);
  for (int step = 2; step <= 40; ++step) {
    pulse_.StepDone(step, absl::Seconds(30));
  }
  pulse_.Begin(Activity::kStep, "launching a step");
  const absl::Duration after = SeenAfter(watch, absl::Minutes(5));
  EXPECT_GT(after, absl::Seconds(90));
  EXPECT_LE(after, absl::Seconds(90) + 3 * HangWatch::kPeriod);
}

TEST_F(HangWatchTest, Look_ProgressNowAndThen_NeverSeen) {
  HangWatch watch(limits_, nullptr);
  for (int step = 2; step < 50; ++step) {
    pulse_.StepDone(step, absl::Seconds(3));
    EXPECT_EQ(SeenAfter(watch, absl::Seconds(3)), absl::InfiniteDuration()) << step;
  }
}

TEST_F(HangWatchTest, Look_OtherActivities_HaveTheirOwnLimits) {
  const absl::Duration never = absl::InfiniteDuration();
  struct Case {
    Activity activity;
    absl::Duration limit;
  };
  for (const Case& each :
       {Case{Activity::kOther, never}, Case{Activity::kPeers, never},
        Case{Activity::kPreparing, absl::Minutes(10)}, Case{Activity::kData, absl::Minutes(1)},
        Case{Activity::kEvaluation, absl::Minutes(1)}}) {
    HangWatch watch(limits_, nullptr);
    pulse_.Begin(each.activity, "it");
    const absl::Duration after = SeenAfter(watch, absl::Hours(1));
    EXPECT_GE(after, each.limit) << static_cast<int>(each.activity);
    EXPECT_LE(after, each.limit + 3 * HangWatch::kPeriod) << static_cast<int>(each.activity);
  }
}

TEST_F(HangWatchTest, Look_NoLimit_NeverSeen) {
  limits_.least = absl::InfiniteDuration();
  HangWatch watch(limits_, nullptr);
  pulse_.Begin(Activity::kStep, "a step");
  EXPECT_EQ(SeenAfter(watch, absl::Hours(1)), absl::InfiniteDuration());
}

TEST_F(HangWatchTest, Look_StillComputing_GetsTwentyTimesTheTime) {
  HangWatch watch(limits_, [] { return true; });
  pulse_.Begin(Activity::kStep, "a step");
  const absl::Duration after = SeenAfter(watch, absl::Hours(1));
  EXPECT_GT(after, 20 * limits_.least);
  EXPECT_LE(after, 20 * limits_.least + 3 * HangWatch::kPeriod);
  EXPECT_TRUE(absl::StrContains(seen_, "computes without end")) << seen_;
}

TEST_F(HangWatchTest, Look_ComputesAndStops_CountsFromThere) {
  bool computes = true;
  HangWatch watch(limits_, [&computes] { return computes; });
  pulse_.Begin(Activity::kStep, "a step");
  EXPECT_EQ(SeenAfter(watch, absl::Seconds(30)), absl::InfiniteDuration());
  computes = false;
  EXPECT_LE(SeenAfter(watch, absl::Minutes(1)), limits_.least + 3 * HangWatch::kPeriod);
}

TEST_F(HangWatchTest, Look_TheWholeProcessStoodStill_IsNotTheStepsFault) {
  HangWatch watch(limits_, nullptr);
  pulse_.Begin(Activity::kStep, "a step");
  EXPECT_EQ(watch.Look(pulse_.Read(), now_), "");
  now_ += HangWatch::kPeriod;
  EXPECT_EQ(watch.Look(pulse_.Read(), now_), "");
  now_ += absl::Hours(3);  // SIGSTOP, or a machine that slept
  EXPECT_EQ(watch.Look(pulse_.Read(), now_), "");
}

}  // namespace
}  // namespace hearth::trainer
