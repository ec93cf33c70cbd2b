#include "coordinator/core/gangs/gang_row.h"

#include "coordinator/core/errors.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

class GangRowTest : public testing::Test {
 protected:
  GangRowTest() {
    row_.mutable_job()->set_job_id("job");
    row_.add_checkpoints()->set_step(7);
    gang_.Begin(now_.wall);
    gang_.AddRank("a", "i1");
    gang_.AddRank("b", "i2");
  }
  static v1::TaskExit Exit(v1::ExitReason reason, bool before_kill = false) {
    v1::TaskExit exit;
    exit.mutable_exit()->set_reason(reason);
    exit.set_before_kill(before_kill);
    return exit;
  }
  absl::Time FaultOf(int rank) const { return FromProto(row_.ranks(rank).fault_time()); }

  const Now now_{absl::FromUnixSeconds(1700000000), absl::Seconds(1000), "boot"};
  v1::JobRecord row_;
  GangRow gang_{row_};
};

TEST_F(GangRowTest, Begin_ForgetsTheGangAndNothingOfTheJob) {
  gang_.OpenEpoch();
  gang_.Kill("why");
  gang_.Begin(now_.wall + absl::Seconds(9));
  EXPECT_EQ(row_.ranks_size(), 0);
  EXPECT_FALSE(row_.has_stop());
  EXPECT_FALSE(row_.epoch_opened());
  EXPECT_EQ(FromProto(row_.epoch_time()), now_.wall + absl::Seconds(9));
  EXPECT_EQ(row_.job().job_id(), "job");
  EXPECT_EQ(row_.checkpoints(0).step(), 7);
}

TEST_F(GangRowTest, Confirm_TellsWhetherItIsNew) {
  EXPECT_TRUE(gang_.Confirm(1));
  EXPECT_FALSE(gang_.Confirm(1));
  EXPECT_FALSE(row_.ranks(0).confirmed());
}

TEST_F(GangRowTest, Restored_BoundsNumbers) {
  gang_.Applied(0, -5);
  gang_.Applied(1, INT64_MAX);
  gang_.Restored();
  EXPECT_EQ(row_.ranks(0).applied_seq(), 0);
  EXPECT_EQ(row_.ranks(1).applied_seq(), int64_t{1} << 60);
}

TEST_F(GangRowTest, Exited_AfterOurKill_IsNoFailureOfItsOwn) {
  gang_.Kill("the others have gone");
  gang_.Exited(0, Exit(v1::EXIT_REASON_KILLED), now_);
  EXPECT_TRUE(row_.ranks(0).gone());
  EXPECT_TRUE(row_.ranks(0).killed_by_us());
  gang_.Exited(1, Exit(v1::EXIT_REASON_KILLED, /*before_kill=*/true), now_);
  EXPECT_FALSE(row_.ranks(1).killed_by_us()) << "it was ending before";
}

TEST_F(GangRowTest, Exited_WithoutAKill_IsItsOwn) {
  gang_.Exited(0, Exit(v1::EXIT_REASON_KILLED), now_);
  EXPECT_FALSE(row_.ranks(0).killed_by_us());
  gang_.Kill("why");
  gang_.Exited(1, Exit(v1::EXIT_REASON_INTERNAL), now_);
  EXPECT_FALSE(row_.ranks(1).killed_by_us()) << "a kill does not make it say that";
}

TEST_F(GangRowTest, Dying_KeepsTheTimeOfTheFault) {
  v1::TaskDying dying;
  dying.mutable_exit()->set_reason(v1::EXIT_REASON_KILLED);
  dying.set_seconds(3);
  EXPECT_TRUE(gang_.Dying(0, dying, now_));
  EXPECT_FALSE(gang_.Dying(0, dying, Before(now_, -absl::Seconds(1))));
  EXPECT_FALSE(row_.ranks(0).gone());
  gang_.Kill("why");
  gang_.Exited(0, Exit(v1::EXIT_REASON_KILLED), Before(now_, -absl::Seconds(20)));
  EXPECT_EQ(FaultOf(0), now_.wall - absl::Seconds(3));
  EXPECT_EQ(TimeSince(row_.ranks(0).fault_moment(), now_), absl::Seconds(3));
  EXPECT_FALSE(row_.ranks(0).killed_by_us()) << "it is the cause";
  EXPECT_FALSE(gang_.Dying(1, dying, now_)) << "all are being killed";
}

TEST_F(GangRowTest, Lost_IsGoneSinceItsWorkersLastWord) {
  gang_.Lost(1, "silent", Before(now_, absl::Seconds(5)));
  EXPECT_TRUE(row_.ranks(1).gone() && row_.ranks(1).lost());
  EXPECT_EQ(row_.ranks(1).lost_reason(), "silent");
  EXPECT_EQ(FaultOf(1), now_.wall - absl::Seconds(5));
  EXPECT_EQ(TimeSince(row_.ranks(1).fault_moment(), now_), absl::Seconds(5));
}

TEST_F(GangRowTest, Kill_KeepsTheReasonOfTheStop) {
  gang_.Stop(v1::CONTROL_BIT_PAUSE, "user_pause", "paused");
  gang_.EndInFailure(true);
  gang_.Kill("grace is over");
  EXPECT_TRUE(row_.stop().kill());
  EXPECT_EQ(row_.stop().reason(), "paused");
  EXPECT_TRUE(row_.stop().fail());
  gang_.Stop(v1::CONTROL_BIT_STOP, "user_cancel", "cancelled");
  EXPECT_FALSE(row_.stop().fail());
  EXPECT_TRUE(row_.stop().kill()) << "what was asked for cannot be taken back";
  gang_.ClearStop();
  gang_.Kill("why");
  EXPECT_EQ(row_.stop().reason(), "why");
}

}  // namespace
}  // namespace hearth::coordinator
