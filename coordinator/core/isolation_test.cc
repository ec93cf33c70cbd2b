// Lost workers told from a coordinator that is cut off, and workers that do not come back after a
// restart.
#include "coordinator/core/core.h"
#include "gmock/gmock.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

// `job` of all of `busy`, running, past the time after a start in which nobody is silent; `idle`
// are there, too. A name's first letter is its host, and "c" is the coordinator's own.
class IsolationTest : public ::testing::Test {
 protected:
  void Begin(const Names& busy, const Names& idle, int min_workers = 1) {
    ConnectAll(busy);
    CreateJob create;
    create.job_id = "job";
    create.paths_checked = true;
    create.spec.mutable_train()->set_steps(1'000'000);  // Pass() takes one with each heartbeat
    create.spec.mutable_checkpoint()->set_grace_seconds(20);
    create.spec.mutable_resources()->set_workers(static_cast<int>(busy.size()));
    create.spec.mutable_resources()->set_min_workers(min_workers);
    create.spec.mutable_resources()->set_device("cpu");
    ASSERT_TRUE(h_.Do(create).reply->status.ok());
    h_.Tick();
    h_.Step("job", 1);
    ASSERT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
    ConnectAll(idle);
    Names all = busy;
    all.insert(all.end(), idle.begin(), idle.end());
    h_.Settle(all);
  }
  void ConnectAll(const Names& names) {
    for (const std::string& name : names) {
      h_.hosts[name] = name.substr(0, 1);
      if (name[0] == 'c') {
        h_.local.insert(name);
      }
      h_.Connect(name);
    }
  }
  Reply Declare(const Names& names) {
    v1::DeclareLostRequest command;
    for (const std::string& name : names) {
      command.add_worker_ids(name);
    }
    return *h_.Do(command).reply;
  }
  // Dials in as after a restart of the coordinator, with the task of that rank.
  void Reattach(const std::string& name, int rank) {
    h_.Connect(name, "i1", {h_.Status("job", rank, true, 1)});
  }

  Harness h_;
};

// After a restart nobody can dial in for longer than the grace. Then two of three do, get a job,
// and the network goes again before the third one is back.
TEST_F(IsolationTest, NetworkComesLateAndGoesAgain_IsTakenForALostNetwork) {
  ConnectAll({"x1", "y1", "z1"});
  h_.Restart();
  h_.Pass(absl::Seconds(40));
  ConnectAll({"x1", "y1"});
  h_.Create(2);
  h_.Tick();
  h_.Step("job", 1);
  ASSERT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  h_.Pass(absl::Seconds(10));
  EXPECT_TRUE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  h_.Beat("x1");
  h_.Beat("y1");
  h_.Pass(absl::Seconds(10), {"x1", "y1"});
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_EQ(h_.Job("job").epoch(), 1);
}

// All workers are idle when the network goes, so they are lost at once. One is back for a moment,
// gets a job, and the network goes again (seed 6770 of the simulation).
TEST_F(IsolationTest, IdleWorkersAreLost_OneReturnsForAMoment_IsTakenForALostNetwork) {
  ConnectAll({"x1", "y1", "z1"});
  h_.Settle({"x1", "y1", "z1"});
  h_.Pass(absl::Seconds(9));
  ASSERT_EQ(h_.WorkerState("z1"), v1::WORKER_STATE_LOST);
  ConnectAll({"x1"});
  h_.Create(1);
  h_.Tick();
  h_.Step("job", 1);
  ASSERT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  h_.Pass(absl::Seconds(10), {}, false);
  EXPECT_TRUE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  h_.Pass(absl::Seconds(10), {"x1"});
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_EQ(h_.Job("job").epoch(), 1);
}

TEST_F(IsolationTest, NobodyAnswers_IsTakenForALostNetwork) {
  Begin({"x1", "x2", "y1", "y2"}, {"z1"});
  h_.Pass(absl::Minutes(9), {});
  EXPECT_TRUE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(h_.Job("job").isolation(), HasSubstr("4 of its 4 workers"));
  EXPECT_EQ(h_.events.back().type(), "warning");
  EXPECT_EQ(h_.events.back().actor(), "coordinator");
  h_.Pass(absl::Minutes(2), {});
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_NE(h_.State("job"), v1::JOB_STATE_RUNNING) << "the grace is over";
  EXPECT_EQ(h_.Job("job").isolation(), "");
}

TEST_F(IsolationTest, IdleWorkersCountToo) {
  Begin({"x1"}, {"y1", "z1"});
  h_.Pass(absl::Minutes(1), {});
  EXPECT_TRUE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
}

TEST_F(IsolationTest, AnIdleWorkerElsewhereAnswers_TheSilentOnesAreLost) {
  Begin({"x1", "y1", "z1"}, {"w1"});
  h_.Pass(absl::Seconds(6), {"w1"});
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING) << "with the one that is left";
  EXPECT_THAT(h_.Job("job").workers(), ElementsAre("w1"));
}

TEST_F(IsolationTest, StreamsOfMostEnd_TheOneThatAnswersDisprovesIt) {
  Begin({"x1", "y1", "z1", "w1"}, {}, 4);
  for (const char* name : {"x1", "y1", "z1"}) {
    h_.Disconnect(name);
  }
  h_.Pass(absl::Seconds(4), {"w1"}, false);
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(h_.WorkerState("x1"), v1::WORKER_STATE_LOST);
}

TEST_F(IsolationTest, HostMateAnswers_TheSilentOnesOfItsHostAreLost) {
  Begin({"c1", "c2", "c3"}, {"c4"});
  h_.Pass(absl::Seconds(6), {"c4"});
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_THAT(h_.Job("job").workers(), ElementsAre("c4"));
}

TEST_F(IsolationTest, OnlyTheOwnMachineAnswers_SaysNothingOfTheOthers) {
  Begin({"x1", "x2", "y1", "y2"}, {"c1"});
  h_.Pass(absl::Minutes(5), {"c1"});
  EXPECT_TRUE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h_.Job("job").epoch(), 1);
}

TEST_F(IsolationTest, OneDeadHostBesidesTheOwn_IsLost) {
  Begin({"x1", "x2", "x3", "x4"}, {"c1"});
  h_.Pass(absl::Seconds(6), {"c1"});
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_THAT(h_.Job("job").workers(), ElementsAre("c1"));
}

TEST_F(IsolationTest, StreamsClosedByTheirKernels_ShowThatTheNetworkIsThere) {
  Begin({"x1", "x2", "y1", "y2"}, {"c1"});
  for (const char* name : {"x1", "x2", "y1", "y2"}) {
    h_.Disconnect(name);
  }
  h_.Pass(absl::Seconds(4), {"c1"});
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_THAT(h_.Job("job").workers(), ElementsAre("c1"));
}

TEST_F(IsolationTest, EveryStreamEndsAndNobodyReturns_NothingIsDisturbed) {
  Begin({"x1", "y1", "z1"}, {});
  for (const char* name : {"x1", "y1", "z1"}) {
    h_.Disconnect(name);
  }
  h_.Pass(absl::Minutes(1), {});
  EXPECT_TRUE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING) << "nobody is there to go on with";
}

TEST_F(IsolationTest, ContactRegained_EndsItAndNothingWasDisturbed) {
  Begin({"x1", "y1", "z1"}, {});
  h_.Pass(absl::Minutes(5), {});
  EXPECT_TRUE(h_.core->isolated());
  h_.Pass(absl::Minutes(1), {"x1", "y1", "z1"});
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h_.Job("job").epoch(), 1);
  EXPECT_EQ(h_.Job("job").isolation(), "");
  EXPECT_THAT(h_.events.back().message(), HasSubstr("contact"));
}

TEST_F(IsolationTest, OneReturns_TheOthersHaveTimeToDialIn) {
  Begin({"x1", "y1", "z1"}, {});
  h_.Pass(absl::Minutes(1), {});
  ASSERT_TRUE(h_.core->isolated());
  Reattach("x1", 0);
  h_.Pass(absl::Seconds(6), {"x1"}, false);
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  Reattach("y1", 1);
  Reattach("z1", 2);
  h_.Pass(absl::Seconds(20), {"x1", "y1", "z1"});
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h_.Job("job").epoch(), 1);
}

TEST_F(IsolationTest, OneReturnsAlone_TheOthersAreLost) {
  Begin({"x1", "y1", "z1"}, {});
  h_.Pass(absl::Minutes(1), {});
  Reattach("x1", 0);
  h_.Pass(absl::Seconds(10), {"x1"}, false);
  EXPECT_EQ(h_.WorkerState("y1"), v1::WORKER_STATE_LOST);
  EXPECT_EQ(h_.WorkerState("z1"), v1::WORKER_STATE_LOST);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RECOVERING);
}

TEST_F(IsolationTest, ContactForAMoment_IsNoReasonToLoseTheOthers) {
  Begin({"x1", "y1", "z1", "w1"}, {});
  h_.Pass(absl::Minutes(1), {});
  Reattach("x1", 0);
  h_.Pass(absl::Seconds(2), {"x1"}, false);
  EXPECT_FALSE(h_.core->isolated());
  h_.Pass(absl::Minutes(1), {}, false);
  EXPECT_TRUE(h_.core->isolated()) << "all are silent again";
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
}

// One worker of the gang is heard in the moment between two cuts, and those without a job are not.
TEST_F(IsolationTest, ContactForAMoment_IdleWorkersStillCountAsMissing) {
  Begin({"x1", "y1"}, {"z1", "w1"});
  for (const char* name : {"x1", "y1", "z1", "w1"}) {
    h_.Disconnect(name);
  }
  h_.Pass(absl::Seconds(20), {});
  ASSERT_TRUE(h_.core->isolated());
  Reattach("x1", 0);
  h_.Pass(absl::Seconds(1), {}, false);
  EXPECT_FALSE(h_.core->isolated());
  h_.Disconnect("x1");
  h_.Pass(absl::Minutes(1), {}, false);
  EXPECT_TRUE(h_.core->isolated()) << "all are silent again";
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h_.WorkerState("x1"), v1::WORKER_STATE_UNREACHABLE);
}

// A daemon is stopped: its trainer steps on until the pipe to it is full.
TEST_F(IsolationTest, StepsEndAfterAWorkerFellSilent_ItIsLostFourSecondsAfterTheLast) {
  Begin({"x1", "y1"}, {"z1"});
  h_.Pass(absl::Seconds(2), {"x1", "z1"});
  h_.Pass(absl::Seconds(3), {"x1", "z1"}, false);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  h_.Pass(absl::Seconds(0.5), {"x1", "z1"}, false);
  EXPECT_EQ(h_.WorkerState("y1"), v1::WORKER_STATE_LOST);
  EXPECT_NE(h_.State("job"), v1::JOB_STATE_RUNNING);
}

// Otherwise the pause between two looks would come on top of the silence.
TEST_F(IsolationTest, SilenceEndsBetweenTwoLooks_TheNextOneIsAtItsEnd) {
  Begin({"x1", "y1"}, {"z1"});
  const absl::Duration end = h_.now.monotonic + absl::Seconds(4);
  h_.Pass(absl::Seconds(3.5), {"x1", "z1"}, false);
  h_.now.monotonic = end - absl::Milliseconds(200);
  h_.Tick();
  EXPECT_EQ(h_.WorkerState("y1"), v1::WORKER_STATE_BUSY);
  EXPECT_EQ(h_.core->NextDeadline(), end);
  h_.now.monotonic = end;
  h_.Tick();
  EXPECT_EQ(h_.WorkerState("y1"), v1::WORKER_STATE_LOST);
}

TEST_F(IsolationTest, FirstOneDialsInAsTheOthersRunOutOfPatience_TheyAreWaitedFor) {
  Begin({"x1", "y1", "z1"}, {});
  h_.Pass(absl::Seconds(4), {});
  Reattach("x1", 0);
  h_.Pass(absl::Seconds(2), {"x1"}, false);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  Reattach("y1", 1);
  Reattach("z1", 2);
  h_.Pass(absl::Seconds(20), {"x1", "y1", "z1"});
  EXPECT_EQ(h_.Job("job").epoch(), 1);
}

TEST_F(IsolationTest, DeclareLost_All_EndsItByTheUser) {
  Begin({"x1", "y1", "z1"}, {"w1"});
  h_.Pass(absl::Minutes(1), {});
  ASSERT_TRUE(h_.core->isolated());
  const Reply reply = Declare({});
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.declared->workers_size(), 3);
  EXPECT_FALSE(reply.declared->isolated());
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_NE(h_.State("job"), v1::JOB_STATE_RUNNING);
  bool by_user = false;
  for (const v1::JobEvent& event : h_.events) {
    by_user = by_user ||
              (event.actor() == "user" && event.message() == "worker y1 declared lost by the user");
  }
  EXPECT_TRUE(by_user);
  ConnectAll({"w1"});
  h_.Pass(absl::Seconds(1), {"w1"});
  EXPECT_THAT(h_.Job("job").workers(), ElementsAre("w1"));
}

// The last words of workers lie up to a heartbeat apart, and the first to run out of patience
// begins the isolation.
TEST_F(IsolationTest, DeclareLost_AllAsItBegins_MeansThoseThatSpokeLastToo) {
  Begin({"x1", "y1", "z1"}, {});
  h_.Pass(absl::Seconds(1), {"z1"}, false);
  h_.Pass(absl::Seconds(3.6), {}, false);
  ASSERT_TRUE(h_.core->isolated());
  const Reply reply = Declare({});
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.declared->workers_size(), 3);
  h_.Pass(absl::Seconds(5), {}, false);
  EXPECT_FALSE(h_.core->isolated());
  EXPECT_NE(h_.State("job"), v1::JOB_STATE_RUNNING);
}

TEST_F(IsolationTest, DeclareLost_Some_LeavesTheRestAndTheIsolation) {
  Begin({"x1", "y1", "z1", "w1"}, {});
  h_.Pass(absl::Minutes(1), {});
  const Reply reply = Declare({"y1"});
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_TRUE(reply.declared->isolated());
  EXPECT_EQ(h_.WorkerState("y1"), v1::WORKER_STATE_LOST);
  EXPECT_EQ(h_.WorkerState("z1"), v1::WORKER_STATE_UNREACHABLE);
}

TEST_F(IsolationTest, DeclareLost_OneThatAnswersOrIsNotKnown_ChangesNothing) {
  Begin({"x1", "y1", "z1"}, {"w1"});
  h_.Pass(absl::Seconds(3), {"x1"});
  EXPECT_EQ(Declare({"y1", "x1"}).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Declare({"nobody"}).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Declare(Names(1001, "x")).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
}

TEST_F(IsolationTest, DeclareLost_AfterARestart_DoesNotWaitForTheGrace) {
  Begin({"x1"}, {"y1"});
  h_.Restart();
  ConnectAll({"y1"});
  h_.Pass(absl::Seconds(1), {"y1"});
  ASSERT_TRUE(Declare({"x1"}).status.ok());
  h_.Pass(absl::Seconds(3), {"y1"});
  EXPECT_THAT(h_.Job("job").workers(), ElementsAre("y1"));
}

TEST_F(IsolationTest, RestartAndOneWorkerIsMissing_ItsGangIsBack_ItIsLostWithinTenSeconds) {
  Begin({"x1", "y1", "z1"}, {});
  h_.Restart();
  h_.Pass(absl::Seconds(2), {});
  Reattach("x1", 0);
  Reattach("y1", 1);
  h_.Pass(absl::Seconds(5), {"x1", "y1"}, false);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING) << "a daemon may still be dialling";
  h_.Pass(absl::Seconds(2), {"x1", "y1"}, false);
  EXPECT_EQ(h_.WorkerState("z1"), v1::WORKER_STATE_LOST);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RECOVERING);
}

TEST_F(IsolationTest, RestartAndTheOnlyRankIsMissing_AllOthersAreBack_ItIsLostWithinTenSeconds) {
  Begin({"x1"}, {"y1"});
  h_.Restart();
  ConnectAll({"y1"});
  h_.Pass(absl::Seconds(9), {"y1"});
  EXPECT_EQ(h_.WorkerState("x1"), v1::WORKER_STATE_LOST);
  EXPECT_THAT(h_.Job("job").workers(), ElementsAre("y1"));
}

TEST_F(IsolationTest, RestartAndAWorkerThatWasBackEnds_TheGraceIsNotForIt) {
  Begin({"x1", "y1"}, {});
  h_.Restart();
  Reattach("x1", 0);
  Reattach("y1", 1);
  h_.Pass(absl::Seconds(2), {"x1", "y1"});
  h_.Disconnect("y1");
  h_.Pass(absl::Seconds(4), {"x1"}, false);
  EXPECT_EQ(h_.WorkerState("y1"), v1::WORKER_STATE_LOST);
}

TEST_F(IsolationTest, RestartAndMoreAreMissing_TheFullGraceHolds) {
  Begin({"x1", "y1", "z1"}, {"w1"});
  h_.Restart();
  Reattach("x1", 0);
  ConnectAll({"w1"});
  h_.Pass(absl::Seconds(28), {"x1", "w1"}, false);
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  Reattach("y1", 1);
  Reattach("z1", 2);
  h_.Pass(absl::Seconds(20), {"w1", "x1", "y1", "z1"});
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h_.Job("job").epoch(), 1);
}

TEST_F(IsolationTest, RestartWhileCutOff_NobodyIsBack_NothingIsRecovered) {
  Begin({"x1"}, {"y1", "z1"});
  h_.Restart();
  h_.Pass(absl::Minutes(5), {});
  EXPECT_TRUE(h_.core->isolated());
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_RUNNING);
}

}  // namespace
}  // namespace hearth::coordinator
