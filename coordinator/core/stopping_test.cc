// A worker whose daemon was asked to end: its tasks save and end within their grace, and it gets no
// new one.
#include "gmock/gmock.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::UnorderedElementsAre;

class StoppingTest : public ::testing::Test {
 protected:
  void SayStopping(const std::string& worker) {
    AgentHeartbeat beat;
    beat.connection_id = h_.connections[worker];
    beat.heartbeat.set_stopping(true);
    h_.Do(beat);
  }
  // Its task ends, then that of the other rank, which the coordinator kills.
  void EndBoth() {
    h_.Exit("job", 0, v1::EXIT_REASON_STOPPED);
    h_.Exit("job", 1, v1::EXIT_REASON_KILLED);
    h_.Tick();
  }

  Harness h_;
};

TEST_F(StoppingTest, NextEpoch_IsPlacedOnTheOthers) {
  for (const char* worker : {"a", "b"}) {
    h_.Connect(worker);
  }
  h_.Create(2);
  h_.Tick();
  ASSERT_EQ(h_.State("job"), v1::JOB_STATE_STARTING);
  h_.Connect("c");
  SayStopping("a");
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING) << "its task ends by itself";
  EndBoth();
  ASSERT_EQ(h_.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h_.Job("job").epoch(), 2);
  EXPECT_THAT(h_.Job("job").workers(), UnorderedElementsAre("b", "c"));
  EXPECT_EQ(h_.core->FindWorker("a")->worker().reason(), "stopping");
  EXPECT_EQ(h_.core->FindWorker("b")->worker().reason(), "");
}

TEST_F(StoppingTest, NoOtherWorker_TheJobWaitsUntilItIsBack) {
  for (const char* worker : {"a", "b"}) {
    h_.Connect(worker);
  }
  h_.Create(2);
  h_.Tick();
  SayStopping("a");
  EndBoth();
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h_.Job("job").epoch(), 1);
  EXPECT_EQ(h_.Job("job").reason(), "needs 2 workers, 1 of 2 is free, 1 is stopping");
  h_.Do(AgentGoodbye{h_.connections["a"], {}});
  h_.Tick();
  EXPECT_EQ(h_.Job("job").epoch(), 1);
  h_.Connect("a", "i2");
  h_.Tick();
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h_.Job("job").epoch(), 2);
  EXPECT_EQ(h_.core->FindWorker("a")->worker().reason(), "");
}

// It would refuse to read.
TEST_F(StoppingTest, IdleWorkerThatIsEnding_IsNoReaderOfACheckpoint) {
  h_.Connect("a");
  h_.Connect("b");
  v1::Checkpoint checkpoint;
  checkpoint.set_root_uuid("root");
  ASSERT_EQ(h_.core->FindIdleReaders(checkpoint, "").idle.size(), 2);
  SayStopping("a");
  const Core::IdleReaders found = h_.core->FindIdleReaders(checkpoint, "");
  ASSERT_EQ(found.idle.size(), 1);
  EXPECT_EQ(found.idle[0].worker_id, "b");
  EXPECT_EQ(found.others, "a is stopping");
}

// The stream breaks and comes back while it ends.
TEST_F(StoppingTest, HelloOfAWorkerThatIsEnding_GetsNoTask) {
  AgentConnected connected;
  connected.connection_id = 77;
  connected.hello.set_worker_id("a");
  connected.hello.set_incarnation("i1");
  connected.hello.mutable_device()->set_kind("cpu");
  connected.hello.set_stopping(true);
  h_.Do(connected);
  h_.Create(1);
  h_.Tick();
  EXPECT_EQ(h_.State("job"), v1::JOB_STATE_QUEUED);
  h_.Connect("b");
  h_.Tick();
  EXPECT_THAT(h_.Job("job").workers(), UnorderedElementsAre("b"));
}

}  // namespace
}  // namespace hearth::coordinator
