// What a job ran on and how hot that became, kept with the job.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A heartbeat of the worker while it runs its task; true: the job's row must reach the disk.
bool BeatCelsius(Harness& h, const std::string& worker, double celsius, int64_t epoch = 1) {
  AgentHeartbeat beat;
  beat.connection_id = h.connections[worker];
  beat.heartbeat.set_job_id("job");
  beat.heartbeat.set_epoch(epoch);
  beat.heartbeat.mutable_device()->set_temperature_celsius(celsius);
  const Effects effects = h.Do(beat);
  return std::any_of(effects.jobs.begin(), effects.jobs.end(),
                     [](const JobRow& row) { return row.durable; });
}

TEST(Devices, HottestTemperature_IsKeptAfterTheEndAndARestart) {
  Harness h;
  h.Running(2);
  EXPECT_EQ(h.Job("job").devices().hottest_celsius(), 0) << "not measured";
  EXPECT_TRUE(BeatCelsius(h, "a", 61));
  h.Step("job", 7);
  EXPECT_TRUE(BeatCelsius(h, "b", 88)) << "to the disk";
  EXPECT_FALSE(BeatCelsius(h, "b", 70)) << "nothing to write";
  EXPECT_FALSE(BeatCelsius(h, "b", 99, 2)) << "of another epoch";
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  h.Exit("job", 1, v1::EXIT_REASON_FINISHED);
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
  BeatCelsius(h, "b", 95);
  for (int look = 0; look < 2; ++look) {
    const v1::JobDevices& devices = h.Job("job").devices();
    EXPECT_EQ(devices.hottest_celsius(), 88) << "what came after its end is not the job's";
    EXPECT_EQ(devices.hottest_worker_id(), "b");
    EXPECT_EQ(devices.hottest_step(), 7);
    EXPECT_GT(devices.hottest_time().seconds(), 0);
    h.Restart();
  }
}

// A heartbeat of the worker that says what its task does.
void BeatPhase(Harness& h, const std::string& worker, const char* phase) {
  AgentHeartbeat beat;
  beat.connection_id = h.connections[worker];
  beat.heartbeat.set_job_id("job");
  beat.heartbeat.set_epoch(1);
  beat.heartbeat.set_phase(phase);
  h.Do(beat);
}

TEST(Phase, IsRankZerosWhileItRuns) {
  Harness h;
  h.Running(2);
  BeatPhase(h, "a", "trial");
  BeatPhase(h, "b", "loading");
  EXPECT_EQ(h.Job("job").phase(), "trial");
  BeatPhase(h, "a", "training");
  EXPECT_EQ(h.Job("job").phase(), "training");
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  h.Exit("job", 1, v1::EXIT_REASON_FINISHED);
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(h.Job("job").phase(), "") << "nothing runs";
}

TEST(Devices, HottestTemperature_IsOfAllEpochs) {
  Harness h;
  h.Running(1);
  BeatCelsius(h, "a", 80);
  h.Cancel("job", true);
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_CANCELLED);
  h.Resume("job");
  h.Tick();
  h.Step("job", 2);
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  BeatCelsius(h, "a", 75, 2);
  EXPECT_EQ(h.Job("job").devices().hottest_celsius(), 80);
  BeatCelsius(h, "a", 81, 2);
  EXPECT_EQ(h.Job("job").devices().hottest_celsius(), 81);
}

TEST(Devices, EqualOnesOfAHost_AreTogether) {
  Harness h;
  for (const char* worker : {"a", "b", "c"}) {
    AgentConnected connected;
    connected.connection_id = static_cast<uint64_t>(100 + worker[0]);
    v1::Hello& hello = connected.hello;
    hello.set_worker_id(worker);
    hello.set_incarnation("i1");
    hello.set_host("node");
    hello.set_version("0.1.0 (abc)");
    hello.mutable_device()->set_kind("cpu");
    hello.mutable_device()->set_model(worker[0] == 'b' ? "big" : "small");
    hello.mutable_device()->set_driver_version("580.82.07");
    hello.set_checkpoint_root("/ck");
    hello.set_root_uuid("root");
    ASSERT_TRUE(h.Do(connected).reply->status.ok());
    h.connections[worker] = connected.connection_id;
  }
  h.Running(3);
  h.Cancel("job", true);
  for (int rank = 0; rank < 3; ++rank) {
    h.Exit("job", rank, v1::EXIT_REASON_KILLED);
  }
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_CANCELLED);
  const v1::JobDevices& devices = h.Job("job").devices();
  ASSERT_EQ(devices.groups_size(), 2);
  const bool first = devices.groups(0).model() == "small";
  const v1::DeviceGroup& small = devices.groups(first ? 0 : 1);
  EXPECT_THAT(small.worker_ids(), ElementsAre("a", "c"));
  EXPECT_EQ(small.host(), "node");
  EXPECT_EQ(small.driver_version(), "580.82.07");
  EXPECT_EQ(small.version(), "0.1.0 (abc)");
  EXPECT_THAT(devices.groups(first ? 1 : 0).worker_ids(), ElementsAre("b"));
}

TEST(Devices, Gang_StepsHaveTheHottestAndTheLeastBusy) {
  Harness h;
  const std::string job = h.Running(3);
  const auto beat = [&h](const std::string& worker, double celsius, double busy) {
    v1::DeviceStatus device;
    device.set_temperature_celsius(celsius);
    device.set_utilization_ratio(busy);
    h.Beat(worker, device);
  };
  const auto step = [&](int64_t number, double celsius, double busy) {
    v1::TaskReport report = h.Next(job, 0);
    report.mutable_step()->set_step(number);
    report.mutable_step()->set_temperature_celsius(celsius);
    report.mutable_step()->set_utilization_ratio(busy);
    h.Report(job, 0, report);
    const v1::StepReport& last = h.core->FindJob(job)->job().last_report();
    return std::pair(last.temperature_celsius(), last.utilization_ratio());
  };
  EXPECT_EQ(step(2, 50, 0.9), std::pair(50.0, 0.9)) << "the others have not measured";
  beat("b", 70, 0.4);
  beat("c", 60, 0.95);
  EXPECT_EQ(step(3, 50, 0.9), std::pair(70.0, 0.4));
  EXPECT_EQ(step(4, 75, 0.2), std::pair(75.0, 0.2)) << "rank 0 itself";
  EXPECT_EQ(step(5, 0, 0), std::pair(70.0, 0.4)) << "only the others measure";
}

constexpr int64_t kGiB = int64_t{1} << 30;

// Workers "a", "b", ... with devices of so much memory.
void ConnectAll(Harness& h, const std::vector<int64_t>& gibibytes) {
  for (size_t i = 0; i < gibibytes.size(); ++i) {
    const std::string worker(1, static_cast<char>('a' + i));
    h.memory[worker] = gibibytes[i] * kGiB;
    h.Connect(worker);
  }
}

TEST(SmallDevices, AJobThatOneIsTooSmallFor_GoesToALargerOneAndSaysSo) {
  Harness h;
  ConnectAll(h, {24, 24, 80});
  h.Create(1);
  h.Tick();
  ASSERT_EQ(h.core->FindJob("job")->ranks(0).worker_id(), "a");
  h.TooSmall("job", 0);
  EXPECT_EQ(h.Job("job").restarts(), 1);
  const auto told = std::find_if(h.events.begin(), h.events.end(), [](const v1::JobEvent& event) {
    return event.type() == "warning";
  });
  ASSERT_NE(told, h.events.end());
  EXPECT_EQ(told->message(),
            "rank 0 on a: needs 90.0 GiB; the job now takes only devices with more than 24.0 GiB "
            "of memory");
  h.Tick();
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.core->FindJob("job")->ranks(0).worker_id(), "c") << "not b, which is as small";
}

TEST(SmallDevices, LargerOnesThatAreGone_AreWaitedForAlsoAfterARestart) {
  Harness h;
  ConnectAll(h, {24, 80});
  h.Running(1);
  h.Disconnect("b");
  h.Pass(absl::Minutes(2), {"a"});
  h.TooSmall("job", 0);
  h.Pass(absl::Seconds(2), {"a"});
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.Job("job").reason_code(), "insufficient_workers");
  EXPECT_EQ(h.Job("job").reason(), "needs 1 cpu worker with more than 24.0 GiB of memory, 0 exist");
  h.Restart();
  h.Connect("a");
  h.Pass(absl::Seconds(5), {"a"});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED) << "it does not go back to the small one";
  h.Connect("b");
  h.Tick();
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.core->FindJob("job")->ranks(0).worker_id(), "b");
}

TEST(SmallDevices, WithoutLargerOnes_TheJobFailsAtOnce_AndAResumeTriesAgain) {
  Harness h;
  ConnectAll(h, {24, 24});
  h.Create(1);
  h.Tick();
  h.TooSmall("job", 0);
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_FAILED) << "and not after max_restarts";
  EXPECT_EQ(h.Job("job").reason_code(), "device_failed");
  EXPECT_EQ(h.Job("job").reason(), "rank 0 on a: needs 90.0 GiB; too few workers have more memory");
  h.Resume("job");
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING) << "its batch may be smaller now";
}

TEST(SmallDevices, OfAGang_OneRankIsTooSmall_TheOthersLeaveAndItMovesOn) {
  Harness h;
  ConnectAll(h, {24, 80, 80});
  h.Create(2);
  h.Tick();
  ASSERT_EQ(h.core->FindJob("job")->ranks(0).worker_id(), "a");
  h.TooSmall("job", 0);
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_RECOVERING);
  h.Exit("job", 1, v1::EXIT_REASON_KILLED);
  h.Tick();
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.core->FindJob("job")->ranks(0).worker_id(), "b");
  EXPECT_EQ(h.core->FindJob("job")->ranks(1).worker_id(), "c");
}

// Ranks share a job's state: with all that it wants it may fit where fewer did not.
TEST(SmallDevices, AGangSmallerThanWanted_IsTriedAgainOnTheSame) {
  Harness h;
  ConnectAll(h, {24});
  CreateJob create;
  create.job_id = "job";
  create.paths_checked = true;
  create.spec.set_name("job");
  create.spec.mutable_train()->set_steps(10);
  create.spec.mutable_resources()->set_workers(2);
  create.spec.mutable_resources()->set_min_workers(1);
  create.spec.mutable_resources()->set_device("cpu");
  create.spec.mutable_resources()->set_max_restarts(1);
  ASSERT_TRUE(h.Do(create).reply->status.ok());
  h.Tick();
  h.TooSmall("job", 0);
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  h.TooSmall("job", 0);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(h.Job("job").reason_code(), "max_restarts");
  EXPECT_THAT(h.Job("job").reason(), HasSubstr("needs 90.0 GiB"));
}

}  // namespace
}  // namespace hearth::coordinator
