#include "coordinator/core/gangs/gang.h"

#include <string>

#include "common/reasons/reason_codes.h"
#include "coordinator/core/gangs/verdict.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kStart = absl::Seconds(1000);

TEST(Gang, Progress_NeverGoesBack) {
  Gang gang(7, kStart);
  gang.Progress(7, kStart + absl::Seconds(1));
  EXPECT_EQ(gang.last_progress(), kStart);
  gang.Progress(9, kStart + absl::Seconds(2));
  EXPECT_EQ(gang.step(), 9);
  EXPECT_EQ(gang.last_progress(), kStart + absl::Seconds(2));
}

TEST(Gang, StepTime_IsTheLongestOfTheLastFew_AndLeavesOutLoading) {
  Gang gang(0, kStart);
  EXPECT_EQ(gang.step_time(), absl::InfiniteDuration());
  gang.Progress(1, kStart + absl::Seconds(60));
  EXPECT_EQ(gang.step_time(), absl::InfiniteDuration());
  gang.Progress(5, kStart + absl::Seconds(68));
  EXPECT_EQ(gang.step_time(), absl::Seconds(2));
  gang.Progress(6, kStart + absl::Seconds(67));  // another rank's word, from before
  EXPECT_EQ(gang.step_time(), absl::Seconds(1));
  gang.Progress(1006, kStart + absl::Seconds(69));
  gang.Progress(1007, kStart + absl::Seconds(79));
  EXPECT_EQ(gang.step_time(), absl::Seconds(10));
}

TEST(Gang, EndBy_TheEarliestCounts) {
  Gang gang(0, kStart);
  EXPECT_FALSE(gang.GraceIsOver(kStart + absl::Hours(1000)));
  gang.EndBy(kStart + absl::Seconds(20));
  gang.EndBy(kStart + absl::Seconds(60));
  EXPECT_FALSE(gang.GraceIsOver(kStart + absl::Seconds(19)));
  EXPECT_TRUE(gang.GraceIsOver(kStart + absl::Seconds(20)));
}

TEST(Gang, Kill_IsRepeated_AndTimesOutFromTheFirst) {
  Gang gang(0, kStart);
  EXPECT_FALSE(gang.KillIsDue(kStart));
  gang.KillSent(kStart);
  EXPECT_FALSE(gang.KillIsDue(kStart + absl::Seconds(9)));
  EXPECT_TRUE(gang.KillIsDue(kStart + absl::Seconds(10)));
  gang.KillSent(kStart + absl::Seconds(10));
  EXPECT_FALSE(gang.KillIsDue(kStart + absl::Seconds(19)));
  EXPECT_TRUE(gang.KillTimedOut(kStart + absl::Seconds(60), absl::Seconds(60)));
}

TEST(Gang, WhyNotFormed_CountsTheRendezvousFromTheLastThatCame) {
  const CoreOptions options;
  v1::JobRecord record;
  record.add_ranks()->set_worker_id("a");
  record.add_ranks()->set_worker_id("b");
  Gang gang(0, kStart);
  gang.HeardPhase(2, 0, "rendezvous", kStart);
  gang.HeardPhase(2, 1, "loading", kStart);
  EXPECT_EQ(gang.WhyNotFormed(record, options, kStart + absl::Minutes(29)), "");
  EXPECT_THAT(gang.WhyNotFormed(record, options, kStart + absl::Minutes(30)),
              HasSubstr("rank 1 on b has been loading"));
  gang.HeardPhase(2, 1, "rendezvous", kStart + absl::Minutes(30));
  EXPECT_EQ(gang.WhyNotFormed(record, options, kStart + absl::Minutes(31)), "");
  EXPECT_THAT(gang.WhyNotFormed(record, options, kStart + absl::Minutes(32)),
              HasSubstr("rank 0 on a is still there"));
  gang.HeardPhase(2, 0, "trial", kStart + absl::Minutes(32));
  gang.HeardPhase(2, 1, "trial", kStart + absl::Minutes(32));
  EXPECT_EQ(gang.WhyNotFormed(record, options, kStart + absl::Hours(100)), "");
}

TEST(Gang, EnergySince_AddsWhatTheCounterGained) {
  Gang gang(0, kStart);
  EXPECT_EQ(gang.EnergySince(1, 500), 0);
  EXPECT_EQ(gang.EnergySince(1, 530), 30);
  EXPECT_EQ(gang.EnergySince(1, 20), 0) << "the device was reset";
  EXPECT_EQ(gang.EnergySince(1, 25), 5);
  EXPECT_EQ(gang.EnergySince(1, 0), 0) << "not known";
  gang.ForgetEnergy();
  EXPECT_EQ(gang.EnergySince(1, 40), 0);
}

TEST(Gangs, Start_ForgetsTheGangBefore) {
  Gangs gangs;
  gangs.Start("job", 3, kStart);
  gangs.of("job").EndBy(kStart);
  gangs.Start("job", 5, kStart + absl::Seconds(1));
  EXPECT_FALSE(gangs.of("job").GraceIsOver(kStart + absl::Hours(1)));
  EXPECT_EQ(gangs.of("job").step(), 5);
}

v1::RankRecord& Ended(v1::JobRecord& record, v1::ExitReason reason) {
  v1::RankRecord& rank = *record.add_ranks();
  rank.set_worker_id("w");
  rank.set_gone(true);
  rank.mutable_exit()->mutable_exit()->set_reason(reason);
  return rank;
}

TEST(JudgeGang, AFatalErrorOutweighsALoss_WhichOutweighsTheRest) {
  v1::JobRecord record;
  Ended(record, v1::EXIT_REASON_COMM);
  EXPECT_EQ(JudgeGang(record).exit_class, ExitClass::kPeers);
  Ended(record, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(JudgeGang(record).rank, 1);
  v1::RankRecord& lost = *record.add_ranks();
  lost.set_gone(true);
  lost.set_lost(true);
  lost.set_lost_reason("silent");
  EXPECT_EQ(JudgeGang(record).code, "worker_lost");
  EXPECT_EQ(JudgeGang(record).message, "silent");
  Ended(record, v1::EXIT_REASON_BAD_SPEC);
  EXPECT_EQ(JudgeGang(record).exit_class, ExitClass::kFatal);
  EXPECT_EQ(JudgeGang(record).rank, 3);
  EXPECT_TRUE(AllGone(record));
}

TEST(JudgeGang, WhatWeKilled_IsNotToBlame) {
  v1::JobRecord record;
  Ended(record, v1::EXIT_REASON_KILLED).set_killed_by_us(true);
  Ended(record, v1::EXIT_REASON_COMM).set_killed_by_us(true);
  EXPECT_EQ(JudgeGang(record).exit_class, ExitClass::kStopped);
  record.mutable_stop()->set_reason_code(reasons::kGangNotFormed);
  EXPECT_EQ(JudgeGang(record).rank, -1);
  EXPECT_EQ(JudgeGang(record).code, reasons::kGangNotFormed);
}

TEST(AnyBroken, DyingCountsAndStoppingDoesNot) {
  v1::JobRecord record;
  Ended(record, v1::EXIT_REASON_FINISHED);
  v1::RankRecord& other = *record.add_ranks();
  EXPECT_FALSE(AnyBroken(record));
  EXPECT_FALSE(AllGone(record));
  other.mutable_dying()->set_reason(v1::EXIT_REASON_KILLED);
  EXPECT_TRUE(AnyBroken(record));
}

}  // namespace
}  // namespace hearth::coordinator
