// The event loop with a real store whose commits the test holds up, on a clock that the test moves.
#include "coordinator/service/loop/loop.h"

#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/fault/fault.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::coordinator {
namespace {

class LoopTest : public testing::Test {
 protected:
  LoopTest() {
    options_.data_dir = temp_.path() + "/data";
    auto store = Store::Open(options_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    const auto state = store_->Load();
    EXPECT_TRUE(state.ok()) << state.status();
    loop_ = std::make_unique<Loop>(LoopOptions(), clock_, *store_, *state, view_, hub_, inspector_,
                                   metrics_);
    loop_->Start([](const InspectionRequest&) {}, [](const DeliveryRequest&) {},
                 [](const absl::Status& status) { ADD_FAILURE() << status; });
    Connect("w0", 1);
    Connect("w1", 2);
    for (int second = 0; second < 40; ++second) {  // past the grace of a start
      clock_.Advance(absl::Seconds(1));
      Beat(1);
      // A second that passes while the loop times its own Tick would delay the next one.
      BeatAndWait(2);
    }
    Settle();
  }
  ~LoopTest() override {
    Release();
    loop_->Stop();
    EXPECT_TRUE(fault::Configure("").ok());
  }

  void Connect(const std::string& worker, uint64_t connection) {
    AgentConnected connected;
    connected.connection_id = connection;
    connected.hello.set_worker_id(worker);
    connected.hello.set_incarnation("i");
    connected.hello.set_host(worker);
    connected.hello.mutable_device()->set_kind("cpu");
    absl::Notification done;
    loop_->PostFromAgent(connected, [&done](const Reply& reply) {
      EXPECT_TRUE(reply.status.ok()) << reply.status;
      done.Notify();
    });
    done.WaitForNotification();
  }
  void Beat(uint64_t connection) {
    loop_->PostFromAgent(AgentHeartbeat{connection, v1::Heartbeat()}, nullptr);
  }
  // The answer comes at the end of the batch, after its Tick.
  void BeatAndWait(uint64_t connection) {
    absl::Notification done;
    loop_->PostFromAgent(AgentHeartbeat{connection, v1::Heartbeat()},
                         [&done](const Reply&) { done.Notify(); });
    done.WaitForNotification();
  }
  v1::WorkerState StateOf(const std::string& worker) {
    v1::WorkerState state = v1::WORKER_STATE_UNSPECIFIED;
    absl::Notification done;
    loop_->Query([&](const Core* core) {
      state = core->FindWorker(worker)->worker().state();
      done.Notify();
    });
    done.WaitForNotification();
    return state;
  }
  // A Tick comes at the end of a batch, so the second question finds what the first one's has done.
  void Settle() {
    StateOf("w0");
    StateOf("w0");
  }

  // A user's command whose commit does not end before Release().
  void HoldACommit() {
    ASSERT_TRUE(fault::Configure("store.before_commit=hold:" + gate_).ok());
    v1::CordonWorkerRequest cordon;
    cordon.set_worker_id("w0");
    loop_->Post(cordon, [this](const Reply&) { committed_.Notify(); });
    held_ = true;
    while (fault::Hits("store.before_commit") == 0) {  // until it is in the commit
      std::this_thread::yield();
    }
  }
  void Release() {
    std::ofstream(gate_) << "go\n";
    if (held_) {
      committed_.WaitForNotification();
    }
  }

  const TempDir temp_;
  const std::string gate_ = temp_.path() + "/gate";
  StoreOptions options_;
  FakeClock clock_;
  std::unique_ptr<Store> store_;
  View view_{EventBounds()};
  AgentHub hub_;
  Inspector inspector_{hub_, clock_, 1};
  CoordinatorMetrics metrics_{1};
  bool held_ = false;
  absl::Notification committed_;
  std::unique_ptr<Loop> loop_;
};

// While one commit takes 4 s, w0 is heard and w1 is not. That time counts as w1's silence: the
// streams were read all along.
TEST_F(LoopTest, LongCommit_ASilentWorkerIsLostAsSoonAsWithoutIt) {
  HoldACommit();
  for (int second = 1; second <= 4; ++second) {
    clock_.Advance(absl::Seconds(1));
    Beat(1);
  }
  Release();
  Settle();
  EXPECT_NE(StateOf("w1"), v1::WORKER_STATE_LOST);
  // 4 s of silence, and the second for streams that were held back.
  clock_.Advance(absl::Milliseconds(1100));
  Beat(1);
  Settle();
  EXPECT_EQ(StateOf("w1"), v1::WORKER_STATE_LOST);
  EXPECT_NE(StateOf("w0"), v1::WORKER_STATE_LOST);
}

// A job whose commit was so long, or that waited meanwhile, is started at once.
TEST_F(LoopTest, LongCommit_JobsArePlannedWithoutDelay) {
  HoldACommit();
  CreateJob create;
  create.job_id = "job";
  create.paths_checked = true;
  create.spec.set_name("job");
  create.spec.mutable_train()->set_steps(10);
  create.spec.mutable_resources()->set_workers(1);
  create.spec.mutable_resources()->set_device("cpu");
  loop_->Post(create, nullptr);
  for (int second = 1; second <= 3; ++second) {
    clock_.Advance(absl::Seconds(1));
    Beat(2);
  }
  Release();
  Settle();
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  absl::Notification done;
  loop_->Query([&](const Core* core) {
    state = core->FindJob("job")->job().state();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(state, v1::JOB_STATE_STARTING);
}

// w1's stream was held back: what it says comes right after a commit that took longer than the
// silence.
TEST_F(LoopTest, CommitLongerThanTheSilence_WhatStreamsHeldBackIsReadFirst) {
  HoldACommit();
  for (int second = 1; second <= 5; ++second) {
    clock_.Advance(absl::Seconds(1));
    Beat(1);
  }
  Release();
  Settle();
  Beat(2);
  clock_.Advance(absl::Milliseconds(1100));
  Beat(1);
  Settle();
  EXPECT_NE(StateOf("w1"), v1::WORKER_STATE_LOST);
  EXPECT_NE(StateOf("w0"), v1::WORKER_STATE_LOST);
}

// Nobody at all was heard: the whole process stood still, so nobody's silence counts.
TEST_F(LoopTest, ProcessStoodStill_NobodyIsLostForIt) {
  HoldACommit();
  clock_.Advance(absl::Seconds(5));
  Release();
  Beat(1);
  Settle();
  clock_.Advance(absl::Milliseconds(1100));
  Beat(1);
  Settle();
  EXPECT_NE(StateOf("w1"), v1::WORKER_STATE_LOST);
}

}  // namespace
}  // namespace hearth::coordinator
