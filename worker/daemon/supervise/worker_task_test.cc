#include "worker/daemon/supervise/worker_task.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"

namespace hearth::worker {
namespace {

v1::Task TaskOf(const std::string& job_id, int64_t epoch, int32_t rank) {
  v1::Task task;
  task.set_job_id(job_id);
  task.set_epoch(epoch);
  task.set_rank(rank);
  return task;
}

class WorkerTaskTest : public ::testing::Test {
 protected:
  void TakeStep(int64_t step, const DeviceReading& device = {}) {
    v1::FromTrainer message;
    message.mutable_step()->set_step(step);
    task_.Take(std::move(message), device);
  }
  void TakeWait(const std::string& key) {
    v1::FromTrainer message;
    message.mutable_kv_wait()->set_key(key);
    task_.Take(std::move(message), {});
  }
  v1::TaskReport NextReport() {
    const auto message = task_.NextMessage();
    EXPECT_TRUE(message.has_value() && message->has_report());
    return message.has_value() ? message->report() : v1::TaskReport();
  }

  FakeClock clock_;
  WorkerTask task_{TaskOf("job", 2, 1), ReportLimits(), clock_};
};

TEST_F(WorkerTaskTest, Life_GoesFromPendingToEnded) {
  EXPECT_TRUE(task_.pending());
  EXPECT_FALSE(task_.lives());
  task_.Run();
  EXPECT_TRUE(task_.running() && task_.lives());
  task_.BeginEnd();
  EXPECT_TRUE(task_.ending() && task_.lives());
  ExitFacts facts;
  facts.wait_status = -9;
  EXPECT_EQ(task_.End(facts).exit().reason(), v1::EXIT_REASON_KILLED);
  EXPECT_TRUE(task_.ended());
  EXPECT_FALSE(task_.lives());
  EXPECT_FALSE(task_.done()) << "its exit is not acknowledged";
  EXPECT_EQ(NextReport().exit().exit().reason(), v1::EXIT_REASON_KILLED);
  task_.Ack(1);
  EXPECT_TRUE(task_.done() && task_.delivered());
}

TEST_F(WorkerTaskTest, FillIn_KeepsAFolderThatTheCoordinatorNamed) {
  task_.FillIn("/root/job/e2", "10.0.0.1", 3, "cuda:0");
  EXPECT_EQ(task_.task().checkpoint_dir(), "/root/job/e2");
  task_.FillIn("/elsewhere", "10.0.0.2", 4, "cpu");
  EXPECT_EQ(task_.task().checkpoint_dir(), "/root/job/e2");
  EXPECT_EQ(task_.task().advertise_host(), "10.0.0.2");
  EXPECT_EQ(task_.task().threads(), 4);
  EXPECT_EQ(task_.task().device(), "cpu");
}

TEST_F(WorkerTaskTest, Step_GetsEpochAndWhatTheDeviceMeasures) {
  DeviceReading device;
  device.energy_joules = 100.0;
  device.power_watts = 350.0;
  device.temperature_celsius = 61.0;
  device.utilization_ratio = 0.75;
  TakeStep(1, device);
  device.energy_joules = 160.0;
  TakeStep(2, device);
  EXPECT_EQ(NextReport().step().energy_joules(), 0.0);
  const v1::TaskReport second = NextReport();
  EXPECT_EQ(second.step().energy_joules(), 60.0);
  EXPECT_EQ(second.step().power_watts(), 350.0);
  EXPECT_EQ(second.step().temperature_celsius(), 61.0);
  EXPECT_EQ(second.step().utilization_ratio(), 0.75);
  EXPECT_EQ(second.step().epoch(), 2);
  EXPECT_EQ(task_.last_step()->step(), 2);
  v1::FromTrainer said;
  said.mutable_step()->set_step(3);
  said.mutable_step()->set_energy_joules(9.0);
  said.mutable_step()->set_power_watts(8.0);
  device.energy_joules = 300.0;
  task_.Take(said, device);
  const v1::TaskReport third = NextReport();
  EXPECT_EQ(third.step().energy_joules(), 9.0) << "what is there stands";
  EXPECT_EQ(third.step().power_watts(), 8.0);
}

TEST_F(WorkerTaskTest, Take_LongTextsAndPhases_AreClipped) {
  v1::FromTrainer message;
  message.mutable_run_info()->set_device(std::string(10000, 'x'));
  task_.Take(message, {});
  EXPECT_EQ(NextReport().run_info().device().size(), 4000u);
  v1::FromTrainer phase;
  phase.mutable_phase()->set_name(std::string(1000, 'p'));
  task_.Take(phase, {});
  EXPECT_EQ(task_.phase().size(), 64u);
  DeviceReading device;
  device.name = "H200";
  task_.Take(message, device);
  EXPECT_EQ(NextReport().run_info().device(), "H200");
}

TEST_F(WorkerTaskTest, Progress_NeverGoesBack) {
  v1::FromTrainer progress;
  progress.mutable_progress()->set_step(7);
  task_.Take(progress, {});
  progress.mutable_progress()->set_step(5);
  progress.mutable_progress()->set_compute_seconds(0.25);
  task_.Take(progress, {});
  EXPECT_EQ(task_.Status().step(), 7);
  EXPECT_EQ(task_.compute_seconds(), 0.25) << "the newest";
}

TEST_F(WorkerTaskTest, BeginSession_SendsWhatIsNotAcknowledgedAgain) {
  TakeStep(1);
  TakeStep(2);
  TakeWait("key");
  EXPECT_EQ(task_.NextMessage()->kv_wait().key(), "key");
  EXPECT_EQ(NextReport().step().step(), 1);
  EXPECT_EQ(NextReport().step().step(), 2);
  EXPECT_FALSE(task_.NextMessage().has_value());
  task_.Ack(1);
  task_.BeginSession();
  const v1::TaskStatus status = task_.Status();
  EXPECT_EQ(status.rank(), 1);
  EXPECT_EQ(status.last_seq(), 2);
  EXPECT_EQ(status.first_unacked_seq(), 2);
  EXPECT_TRUE(status.running()) << "pending counts: its device is promised to it";
  EXPECT_EQ(task_.NextMessage()->kv_wait().key(), "key");
  EXPECT_EQ(NextReport().step().step(), 2);
  EXPECT_FALSE(task_.NextMessage().has_value());
}

TEST_F(WorkerTaskTest, TakeKeyAnswer_GoesToWhoWaitsAndErrorsToAll) {
  v1::KvValue value;
  value.set_key("key");
  EXPECT_FALSE(task_.TakeKeyAnswer(value));
  TakeWait("key");
  EXPECT_TRUE(task_.TakeKeyAnswer(value));
  EXPECT_FALSE(task_.TakeKeyAnswer(value));
  value.set_error("full");
  EXPECT_TRUE(task_.TakeKeyAnswer(value));
  task_.Refuse(v1::EXIT_REASON_ABORTED, "why");
  EXPECT_FALSE(task_.TakeKeyAnswer(value)) << "nobody is there to hear it";
}

TEST_F(WorkerTaskTest, Forget_ReportsNothingMore) {
  task_.Run();
  TakeStep(1);
  task_.Forget();
  TakeStep(2);
  task_.TakeOutput("info", "a line");
  EXPECT_FALSE(task_.NextMessage().has_value());
  EXPECT_EQ(task_.Status().last_seq(), 1);
  EXPECT_FALSE(task_.done()) << "its trainer lives";
  task_.End(ExitFacts());
  EXPECT_TRUE(task_.done());
  EXPECT_FALSE(task_.delivered());
}

TEST_F(WorkerTaskTest, ReportDying_OnlyWhileItRunsUnasked) {
  ExitFacts facts;
  facts.wait_status = -9;
  EXPECT_FALSE(task_.ReportDying(facts, true, absl::Seconds(1)).has_value()) << "pending";
  task_.Run();
  EXPECT_EQ(task_.ReportDying(facts, true, absl::Seconds(1))->seconds(), 1.0);
  EXPECT_TRUE(NextReport().has_dying());
  task_.BeginEnd();
  EXPECT_FALSE(task_.ReportDying(facts, true, absl::Seconds(1)).has_value()) << "asked for";
}

TEST_F(WorkerTaskTest, Exit_CarriesWhatTheTrainerSaidAndItsCheckpoint) {
  task_.Run();
  TakeStep(8);
  v1::FromTrainer checkpoint;
  checkpoint.mutable_checkpoint()->set_step(5);
  task_.Take(checkpoint, {});
  v1::FromTrainer said;
  said.mutable_exit()->set_reason(v1::EXIT_REASON_PAUSED);
  task_.Take(said, {});
  const v1::TaskExit exit = task_.End(ExitFacts());
  EXPECT_EQ(exit.exit().reason(), v1::EXIT_REASON_PAUSED);
  EXPECT_EQ(exit.exit().step(), 8);
  EXPECT_EQ(exit.exit().checkpoint_step(), 5);
}

TEST_F(WorkerTaskTest, Tick_EnergyCountsFromTheFirstHeartbeatOfALivingTask) {
  task_.Tick(100.0);
  EXPECT_EQ(task_.EnergyTotal(150.0), 0.0) << "pending";
  task_.Run();
  task_.Tick(200.0);
  task_.Tick(210.0);
  EXPECT_EQ(task_.EnergyTotal(250.0), 50.0);
}

}  // namespace
}  // namespace hearth::worker
