#include "coordinator/core/workers/worker_views.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/coordinator/queued_job.h"

namespace hearth::coordinator {
namespace {

class WorkerViewsTest : public testing::Test {
 protected:
  const WorkerState& Connect(const std::string& name, uint64_t connection) {
    AgentConnected command;
    command.connection_id = connection;
    command.hello.set_worker_id(name);
    command.hello.set_incarnation("i1");
    return workers_.Connect(command, now_);
  }
  // A job whose gang, of the third epoch, has its second rank on that worker.
  JobState& RunOn(const WorkerState& worker) {
    JobState& kept = jobs_.Add(QueuedJob("job", 2), now_);
    kept.BeginEpoch({"elsewhere", worker.worker().worker_id()});
    kept.gang().Begin(now_.wall);
    kept.gang().AddRank("elsewhere", "i1");
    kept.gang().AddRank(worker.worker().worker_id(), worker.worker().incarnation());
    jobs_.Transition(kept, v1::JOB_STATE_STARTING, "test", "scheduled", "because", now_,
                     turn_.effects());
    workers_.Assign(worker, "job");
    return kept;
  }
  void Pass(absl::Duration time) {
    now_.monotonic += time;
    turn_.Begin(now_);
  }

  const CoreOptions options_{};
  Now now_{absl::FromUnixSeconds(1700000000), absl::Seconds(1000)};
  PlanTimer plan_{absl::Seconds(1000)};
  Turn turn_{1, now_};
  Workers workers_{options_, plan_};
  Liveness liveness_{options_, absl::Seconds(1000)};
  Jobs jobs_{plan_, kDefaultAging, 0};
  WorkerViews views_{turn_, workers_, jobs_, liveness_};
};

TEST_F(WorkerViewsTest, Update_ShowsEpochAndRankOfItsTask) {
  const WorkerState& worker = Connect("w", 1);
  RunOn(worker);
  views_.Update(worker);
  EXPECT_EQ(worker.worker().state(), v1::WORKER_STATE_BUSY);
  EXPECT_EQ(worker.worker().epoch(), 3);
  EXPECT_EQ(worker.worker().rank(), 1);
}

TEST_F(WorkerViewsTest, Review_Silence_ShowsWhenTheGraceOfTheStartIsOver) {
  const WorkerState& worker = Connect("w", 1);
  Pass(options_.silence + absl::Seconds(1));
  views_.Review();
  EXPECT_EQ(worker.worker().state(), v1::WORKER_STATE_IDLE);
  Pass(options_.reattach_grace);
  views_.Review();
  EXPECT_EQ(worker.worker().state(), v1::WORKER_STATE_OFFLINE);
}

TEST_F(WorkerViewsTest, Flush_HandsOutRowsThatAreUpToDate) {
  const WorkerState& worker = Connect("w", 1);
  RunOn(worker);
  views_.Flush();
  ASSERT_EQ(turn_.effects().workers.size(), 1);
  EXPECT_EQ(turn_.effects().workers[0].record.worker().epoch(), 3);
}

TEST_F(WorkerViewsTest, Expire_ForgetsThoseThatAreAwayForLongAndHaveNoRank) {
  const WorkerState& busy = Connect("busy", 1);
  const WorkerState& away = Connect("away", 2);
  Connect("here", 3);
  RunOn(busy);
  workers_.Disconnect(busy, now_.monotonic);
  workers_.Disconnect(away, now_.monotonic);
  Pass(options_.worker_ttl - absl::Seconds(1));
  views_.Expire();
  EXPECT_TRUE(turn_.effects().worker_deletes.empty());
  Pass(absl::Seconds(1));
  views_.Expire();
  EXPECT_EQ(turn_.effects().worker_deletes, std::vector<std::string>{"away"});
  EXPECT_EQ(workers_.Find("away"), nullptr);
  EXPECT_NE(workers_.Find("busy"), nullptr);
  EXPECT_NE(workers_.Find("here"), nullptr);
}

TEST_F(WorkerViewsTest, HasRank_ByItsTaskOrByTheRecordOfAGang) {
  const WorkerState& worker = Connect("w", 1);
  const WorkerState& idle = Connect("v", 2);
  JobState& job = RunOn(worker);
  EXPECT_TRUE(views_.HasRank(worker));
  EXPECT_FALSE(views_.HasRank(idle));
  workers_.Release(worker, "job", now_.monotonic);
  EXPECT_TRUE(views_.HasRank(worker));
  jobs_.Transition(job, v1::JOB_STATE_RECOVERING, "test", "worker_lost", "because", now_,
                   turn_.effects());
  jobs_.Transition(job, v1::JOB_STATE_QUEUED, "test", "insufficient_workers", "because", now_,
                   turn_.effects());
  EXPECT_FALSE(views_.HasRank(worker));
}

}  // namespace
}  // namespace hearth::coordinator
