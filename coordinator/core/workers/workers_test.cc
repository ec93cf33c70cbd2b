#include "coordinator/core/workers/workers.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class WorkersTest : public testing::Test {
 protected:
  const WorkerState& Connect(const std::string& name, uint64_t connection = 1) {
    AgentConnected command;
    command.connection_id = connection;
    command.hello.set_worker_id(name);
    command.hello.set_incarnation("i1");
    return workers_.Connect(command, now_);
  }
  v1::WorkerState StateOf(const WorkerState& worker, bool silent = false) {
    workers_.UpdateView(worker, {.epoch = 3, .rank = 1, .silent = silent});
    return worker.worker().state();
  }
  Effects Flush() {
    Effects effects;
    workers_.Flush([](const WorkerState&) { return Workers::Facts(); }, effects);
    return effects;
  }

  CoreOptions options_;
  Now now_{absl::FromUnixSeconds(1700000000), absl::Seconds(1000)};
  PlanTimer plan_{absl::Seconds(1000)};
  Workers workers_{options_, plan_};
};

TEST_F(WorkersTest, State_FollowsFromConnectionTaskAndSilence) {
  const WorkerState& worker = Connect("w");
  EXPECT_EQ(StateOf(worker), v1::WORKER_STATE_IDLE);
  EXPECT_EQ(StateOf(worker, true), v1::WORKER_STATE_OFFLINE);
  workers_.Assign(worker, "job");
  EXPECT_EQ(StateOf(worker), v1::WORKER_STATE_BUSY);
  EXPECT_EQ(worker.worker().epoch(), 3);
  EXPECT_EQ(StateOf(worker, true), v1::WORKER_STATE_UNREACHABLE);
  workers_.MarkUnhealthy(worker, "ill");
  EXPECT_EQ(StateOf(worker), v1::WORKER_STATE_UNHEALTHY);
  EXPECT_EQ(worker.worker().reason(), "ill");
  workers_.MarkLost(worker);
  EXPECT_EQ(StateOf(worker), v1::WORKER_STATE_LOST);
}

TEST_F(WorkersTest, Release_OfAnotherJob_ChangesNothing) {
  const WorkerState& worker = Connect("w");
  workers_.Assign(worker, "job");
  workers_.Release(worker, "other", now_.monotonic);
  EXPECT_EQ(worker.job_id, "job");
  workers_.Release(worker, "job", now_.monotonic + absl::Seconds(5));
  EXPECT_EQ(worker.job_id, "");
  EXPECT_EQ(worker.idle_since, now_.monotonic + absl::Seconds(5));
}

TEST_F(WorkersTest, Disconnect_TheStreamIsNobodysAnyMore) {
  const WorkerState& worker = Connect("w", 7);
  EXPECT_EQ(workers_.OnConnection(7), &worker);
  workers_.StreamEnded(worker, now_.monotonic + absl::Seconds(1));
  EXPECT_EQ(workers_.OnConnection(7), nullptr);
  EXPECT_TRUE(worker.ended_by_peer);
  Connect("w", 8);
  EXPECT_FALSE(worker.ended_by_peer);
  workers_.StreamEnded(worker, now_.monotonic + absl::Seconds(10));
  EXPECT_FALSE(worker.ended_by_peer) << "long after its last word";
}

TEST_F(WorkersTest, Fenced_TaskThatDoesNotEnd_MakesUnhealthy_UntilItEndsClean) {
  const WorkerState& worker = Connect("w");
  workers_.Fence(worker, {"job", 1}, now_.monotonic);
  workers_.CheckFenced(worker, now_.monotonic + options_.kill_timeout - absl::Seconds(1));
  EXPECT_FALSE(worker.Unhealthy());
  workers_.CheckFenced(worker, now_.monotonic + options_.kill_timeout);
  EXPECT_TRUE(worker.Unhealthy());
  v1::TaskExit exit;
  exit.set_clean(true);
  workers_.FencedTaskEnded(worker, {"job", 1}, exit, now_.monotonic);
  EXPECT_FALSE(worker.Unhealthy());
  EXPECT_THAT(worker.foreign, IsEmpty());
}

TEST_F(WorkersTest, ForgetTask_TellsOnce_AndNotWithoutEnd) {
  const WorkerState& worker = Connect("w");
  EXPECT_EQ(workers_.ForgetTask(worker, {"job", 1}), Workers::Forgetting::kTell);
  EXPECT_EQ(workers_.ForgetTask(worker, {"job", 1}), Workers::Forgetting::kTold);
  for (size_t i = 1; i < Workers::kForgottenMax; ++i) {
    workers_.ForgetTask(worker, {"job", static_cast<int64_t>(i) + 1});
  }
  EXPECT_EQ(workers_.ForgetTask(worker, {"job", 1}), Workers::Forgetting::kTooMany);
}

TEST_F(WorkersTest, Rows_AreDurableWhenTheRecordChanged) {
  const WorkerState& worker = Connect("w");
  EXPECT_TRUE(Flush().workers.at(0).durable);
  workers_.HeardDevice(worker, v1::Heartbeat());
  EXPECT_FALSE(Flush().workers.at(0).durable);
  workers_.Edit(worker).mutable_worker()->set_cordoned(true);
  EXPECT_TRUE(Flush().workers.at(0).durable);
  EXPECT_THAT(Flush().workers, IsEmpty());
}

TEST_F(WorkersTest, HeardHealth_HealthyAgain_ClearsWhatWasKept) {
  const WorkerState& worker = Connect("w");
  workers_.HeardHealth(worker, "a process is left");
  workers_.MarkUnhealthy(worker, "a task could not be proven gone");
  workers_.HeardHealth(worker, "");
  EXPECT_FALSE(worker.Unhealthy());
}

TEST_F(WorkersTest, Expire_ForgetsTheLongGone_ButNotTheMarkedOrTheNeeded) {
  for (const char* name : {"gone", "cordoned", "needed"}) {
    workers_.Disconnect(Connect(name), now_.monotonic);
  }
  workers_.Edit(workers_.at("cordoned")).mutable_worker()->set_cordoned(true);
  const auto needed = [](const WorkerState& worker) {
    return worker.worker().worker_id() == "needed";
  };
  Effects effects;
  workers_.Expire(needed, now_.monotonic + options_.worker_ttl - absl::Seconds(1), effects);
  EXPECT_THAT(effects.worker_deletes, IsEmpty());
  workers_.Expire(needed, now_.monotonic + options_.worker_ttl, effects);
  EXPECT_THAT(effects.worker_deletes, ElementsAre("gone"));
  EXPECT_THAT(workers_.all(), SizeIs(2));
}

TEST_F(WorkersTest, RestoreRank_WithoutARow_MakesTheWorkerKnown) {
  v1::RankRecord rank;
  rank.set_worker_id("w");
  rank.set_incarnation("i7");
  workers_.RestoreRank(rank, "job", now_.monotonic);
  EXPECT_EQ(workers_.at("w").worker().incarnation(), "i7");
  EXPECT_EQ(workers_.at("w").job_id, "job");
}

}  // namespace
}  // namespace hearth::coordinator
