// A gang's start is bounded, whatever its ranks wait for.
#include "gmock/gmock.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

class StartingTest : public ::testing::Test {
 protected:
  StartingTest() {
    h_.Connect("a");
    h_.Connect("b");
    h_.Create(2);
    h_.Tick();
    EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING);
  }

  // Heartbeats of both workers for so long; what each rank does.
  void Pass(absl::Duration by, const std::string& a, const std::string& b) {
    for (absl::Duration done; done < by; done += absl::Seconds(1)) {
      h_.now.monotonic += absl::Seconds(1);
      h_.now.wall += absl::Seconds(1);
      Beat("a", a);
      Beat("b", b);
      h_.Tick();
    }
  }
  void Beat(const std::string& worker, const std::string& phase) {
    AgentHeartbeat beat;
    beat.connection_id = h_.connections[worker];
    const v1::Worker& known = h_.core->FindWorker(worker)->worker();
    beat.heartbeat.set_job_id(known.job_id());
    beat.heartbeat.set_epoch(known.epoch());
    beat.heartbeat.set_phase(phase);
    h_.Do(beat);
  }
  void KilledRanksLeave() {
    for (int rank = 0; rank < 2; ++rank) {
      h_.Exit("job", rank, v1::EXIT_REASON_KILLED);
    }
  }

  Harness h_;
};

TEST_F(StartingTest, RanksThatDoNotConnect_StartAgainAsTheNextEpochWithTheReason) {
  Pass(absl::Seconds(70), "rendezvous", "rendezvous");
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING) << "trainers give up by themselves first";
  Pass(absl::Seconds(10), "rendezvous", "rendezvous");
  ASSERT_EQ(h_.State("job"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(h_.Job("job").reason_code(), "gang_not_formed");
  EXPECT_THAT(h_.Job("job").reason(), HasSubstr("did not form within 1m"));
  EXPECT_THAT(h_.Job("job").reason(), HasSubstr("rank 0 on "));
  EXPECT_EQ(h_.Sent(v1::CoordinatorMessage::kKill), 2);
  KilledRanksLeave();
  h_.Tick();
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h_.Job("job").epoch(), 2);
  EXPECT_EQ(h_.Job("job").restarts(), 1);
  EXPECT_FALSE(h_.Job("job").has_recovery()) << "no rank was lost";
  EXPECT_TRUE(std::any_of(h_.events.begin(), h_.events.end(), [](const v1::JobEvent& event) {
    return event.reason_code() == "gang_not_formed" && event.epoch() == 1;
  }));
}

TEST_F(StartingTest, GangThatNeverForms_EndsTheJobAfterMaxRestarts) {
  for (int epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_EQ(h_.Job("job").epoch(), epoch);
    Pass(absl::Seconds(80), "rendezvous", "rendezvous");
    KilledRanksLeave();
    h_.Tick();
  }
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(h_.Job("job").reason_code(), "max_restarts");
  EXPECT_THAT(h_.Job("job").reason(), HasSubstr("did not form"));
}

TEST_F(StartingTest, RanksThatWaitForOneThatLoads_AreNotLate) {
  Pass(absl::Minutes(20), "rendezvous", "loading");
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING);
  Pass(absl::Seconds(70), "rendezvous", "rendezvous");
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING) << "counts from the last rank's coming";
  Pass(absl::Seconds(10), "rendezvous", "rendezvous");
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RECOVERING);
}

TEST_F(StartingTest, RankThatLoadsForTooLong_IsNamed) {
  Pass(absl::Minutes(30) + absl::Seconds(2), "rendezvous", "loading");
  ASSERT_EQ(h_.State("job"), v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(h_.Job("job").reason(), HasSubstr("rank 1 on "));
  EXPECT_THAT(h_.Job("job").reason(), HasSubstr("loading for 30m"));
}

TEST_F(StartingTest, TrainerThatNeverSpeaks_IsNamed) {
  Pass(absl::Minutes(30) + absl::Seconds(2), "", "");
  ASSERT_EQ(h_.State("job"), v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(h_.Job("job").reason(), HasSubstr("has not said what it does"));
}

TEST_F(StartingTest, TrialAndFirstStep_TakeAsLongAsTheyTake) {
  Pass(absl::Seconds(2), "rendezvous", "rendezvous");
  Pass(absl::Hours(2), "trial", "trial");
  Pass(absl::Hours(2), "training", "training");
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING);
  h_.Step("job", 1);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
}

TEST_F(StartingTest, CoordinatorThatCameBack_CountsFromItsOwnStart) {
  Pass(absl::Minutes(29), "loading", "loading");
  h_.Restart();
  h_.Connect("a", "i1", {h_.Status("job", 0, true, 0)});
  h_.Connect("b", "i1", {h_.Status("job", 1, true, 0)});
  Pass(absl::Minutes(29), "loading", "loading");
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING);
  Pass(absl::Minutes(2), "loading", "loading");
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RECOVERING);
}

TEST_F(StartingTest, Tasks_SayHowLongTrainersMayTake) {
  const v1::CoordinatorMessage* start = h_.FindSent(v1::CoordinatorMessage::kStart, "a");
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->start().task().rendezvous_seconds(), 60);
  EXPECT_EQ(start->start().task().gather_seconds(), 3600);
}

}  // namespace
}  // namespace hearth::coordinator
