// Silence: when a worker counts as lost, and what the job's events say meanwhile.
#include <algorithm>

#include "coordinator/core/core.h"
#include "gmock/gmock.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using M = v1::CoordinatorMessage;

TEST(Liveness, FourSecondsOfSilence_LoseTheWorkerAndAbortTheOthersAtOnce) {
  Harness h;
  h.Running(2);
  h.Settle({"a", "b"});
  h.sent.clear();
  h.Pass(absl::Seconds(3.5), {"a"}, false);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING) << "a stall of 3.5 s is no loss";
  h.Pass(absl::Seconds(0.5), {"a"}, false);
  EXPECT_EQ(h.WorkerState("b"), v1::WORKER_STATE_LOST);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(h.Sent(M::kKill, "a"), 1);
  EXPECT_EQ(h.Job("job").reason_code(), "worker_lost");
}

TEST(Liveness, EndedStreamAndNoNewOne_LosesTheWorkerAfterThreeSeconds) {
  Harness h;
  h.Running(2);
  h.Settle({"a", "b"});
  h.Disconnect("b");
  h.Pass(absl::Seconds(2.5), {"a"}, false);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  h.Pass(absl::Seconds(1), {"a"}, false);
  EXPECT_EQ(h.WorkerState("b"), v1::WORKER_STATE_LOST);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RECOVERING);
}

TEST(Liveness, SilentWorkerWhoseJobSteps_IsUnreachableNotLost) {
  Harness h;
  h.Running(2);
  h.Settle({"a", "b"});
  h.Pass(absl::Seconds(30), {"a"});
  EXPECT_EQ(h.WorkerState("b"), v1::WORKER_STATE_UNREACHABLE);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
}

// As long as the job goes on, the silence is noticed all the same: the job's events say so.
TEST(Liveness, SilentWorkerWhoseJobSteps_IsNotedWithinFourSecondsOnceForEachSilence) {
  Harness h;
  h.Running(2);
  h.Settle({"a", "b"});
  const auto notes = [&h] {
    return std::count_if(h.events.begin(), h.events.end(), [](const v1::JobEvent& event) {
      return event.actor() == "worker:b" && event.type() == "warning" &&
             event.message() ==
                 "worker b is silent for 4s; it is not lost as long as the job makes steps";
    });
  };
  h.Pass(absl::Seconds(3.5), {"a"});
  EXPECT_EQ(notes(), 0);
  h.Pass(absl::Seconds(0.5), {"a"});
  EXPECT_EQ(notes(), 1);
  h.Pass(absl::Seconds(30), {"a"});
  EXPECT_EQ(notes(), 1) << "once";
  h.Pass(absl::Seconds(5), {"a", "b"});
  h.Pass(absl::Seconds(5), {"a"});
  EXPECT_EQ(notes(), 2) << "the next silence";
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
}

// What is sent to a worker is lost: it is heard up to a heartbeat longer, and its job stands.
TEST(Liveness, DeafWorkerThatIsHeardOneHeartbeatLonger_IsLostWithinFiveSeconds) {
  Harness h;
  h.Running(2);
  h.Settle({"a", "b"});
  absl::Duration noticed = CoreOptions{}.heartbeat;
  h.Pass(noticed, {"a", "b"}, false);
  while (h.State("job") == v1::JOB_STATE_RUNNING && noticed < absl::Seconds(20)) {
    h.Pass(absl::Milliseconds(500), {"a"}, false);
    noticed += absl::Milliseconds(500);
  }
  EXPECT_LE(noticed, absl::Seconds(4.5));
}

TEST(Liveness, NobodyIsSilentWithinReattachGrace) {
  Harness h;
  h.Running(1);
  h.Restart();
  h.Pass(absl::Seconds(29), {});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  h.Connect("a", "i1", {h.Status("job", 0, true, 1)});
  h.Pass(absl::Seconds(10), {"a"});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h.Job("job").epoch(), 1);
}

TEST(Liveness, StallOfTheCoordinator_IsNobodysSilence) {
  Harness h;
  h.Running(1);
  h.Settle({"a"});
  h.now.monotonic += absl::Minutes(3);
  h.Tick();
  h.Pass(absl::Seconds(3), {});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  h.Pass(absl::Seconds(60), {"a"});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
}

}  // namespace
}  // namespace hearth::coordinator
