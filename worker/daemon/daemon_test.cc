#include "worker/daemon/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/fault/fault.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_state.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/daemon/fake_coordinator.h"

namespace hearth::worker {
namespace {

using ::testing::HasSubstr;

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    signals_ = Fd(fds[0]);
    signals_write_ = Fd(fds[1]);
  }
  ~DaemonTest() override {
    if (thread_.joinable()) {
      thread_.join();
    }
    daemon_.reset();
  }

  WorkerOptions Options() const {
    WorkerOptions options;
    options.coordinator = coordinator_.address();
    options.home = home_;
    options.http = "127.0.0.1:0";
    options.trainer = HEARTH_FAKE_TRAINER;
    options.threads = 1;
    options.labels["zone"] = "a";
    return options;
  }
  FakeCoordinator::Stream& StartDaemon() {
    auto daemon = Daemon::Create(Options(), Clock::Real());
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    thread_ = std::thread([this] { exit_code_ = daemon_->Run(signals_.get()); });
    return coordinator_.Wait(0);
  }
  // Starts a daemon that runs a task of one step with this script; its step is read.
  FakeCoordinator::Stream& StartTask(const std::string& script) {
    FakeCoordinator::Stream& stream = StartDaemon();
    Greet(stream);
    StartScript(stream, script);
    EXPECT_TRUE(stream.Next().report().has_step());
    return stream;
  }
  // What a signalfd would give for SIGTERM.
  void Signal() {
    signalfd_siginfo info{};
    info.ssi_signo = SIGTERM;
    EXPECT_EQ(write(signals_write_.get(), &info, sizeof(info)), static_cast<ssize_t>(sizeof(info)));
  }
  ExitCode WaitForExit() {
    thread_.join();
    return exit_code_;
  }

  const TempDir temp_;
  const std::string home_ = temp_.path();
  FakeCoordinator coordinator_;
  Fd signals_;
  Fd signals_write_;
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
  ExitCode exit_code_ = kExitError;
};

TEST_F(DaemonTest, Hello_Identity_SaysWhatTheHostIs) {
  const v1::Hello hello = Greet(StartDaemon());
  EXPECT_THAT(hello.worker_id(), HasSubstr("-cpu0"));
  EXPECT_EQ(hello.incarnation().size(), 32u);
  EXPECT_EQ(hello.device().kind(), "cpu");
  EXPECT_EQ(hello.device().threads(), 1);
  EXPECT_EQ(hello.labels().at("zone"), "a");
  EXPECT_THAT(hello.confinement(), ::testing::Contains("system calls filtered"));
  EXPECT_EQ(hello.checkpoint_root(), home_ + "/checkpoints");
  EXPECT_TRUE(IsUuid(hello.root_uuid()));
  EXPECT_THAT(hello.http_address(), HasSubstr("127.0.0.1:"));
  Signal();
  EXPECT_EQ(WaitForExit(), kExitOk);
}

TEST_F(DaemonTest, HostMemory_IsToldWithTheDevice_AndWhatIsLeftInHeartbeats) {
  FakeCoordinator::Stream& stream = StartDaemon();
  const int64_t all = Greet(stream).device().host_memory_bytes();
  EXPECT_GT(all, 1 << 20);
  stream.WaitForHeartbeat();
  const int64_t left = stream.Device().host_memory_available_bytes();
  EXPECT_GT(left, 0);
  EXPECT_LE(left, all);
  Signal();
  EXPECT_EQ(WaitForExit(), kExitOk);
}

TEST_F(DaemonTest, Signal_RunningTask_StopsReportsAndSaysGoodbye) {
  FakeCoordinator::Stream& stream = StartTask("ignore_term;steps:1;wait_control");
  Signal();
  bool stopped = false;
  while (true) {
    const v1::AgentMessage message = stream.Next();
    if (message.has_goodbye()) {
      break;
    }
    ASSERT_TRUE(message.has_report()) << message.ShortDebugString();
    if (message.report().has_exit()) {
      stopped = message.report().exit().exit().reason() == v1::EXIT_REASON_STOPPED;
    }
    AckReport(stream, message.report().seq());
  }
  EXPECT_TRUE(stopped);
  EXPECT_EQ(WaitForExit(), kExitOk);
  stream.WaitForEnd();
}

TEST_F(DaemonTest, SecondSignal_StubbornTask_IsKilled) {
  StartTask("ignore_term;steps:1;hang");
  Signal();
  Signal();
  EXPECT_EQ(WaitForExit(), kExitKilled);
}

TEST_F(DaemonTest, Hello_Aborted_ExitsAsReplaced) {
  StartDaemon().Close(rpc::ToGrpc(
      rpc::MakeError(absl::StatusCode::kAborted, "a newer daemon", "STALE_INCARNATION")));
  EXPECT_EQ(WaitForExit(), kExitReplaced);
}

TEST_F(DaemonTest, Create_SameNameTwice_IsRefused) {
  WorkerOptions options = Options();
  options.name = "w";
  const auto first = Daemon::Create(options, Clock::Real());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Daemon::Create(options, Clock::Real());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--data-dir"));
}

// On GPU-1 of two, played by the fake library.
class GpuDaemonTest : public DaemonTest {
 protected:
  GpuDaemonTest() {
    fake_.SetTwoGpus();
    options_ = Options();
    options_.device = "cuda:1";
    options_.threads = 0;
    options_.nvml_library = HEARTH_FAKE_NVML_LIBRARY;
    options_.gone_bound = absl::Milliseconds(300);
  }
  FakeCoordinator::Stream& StartGpuDaemon() {
    auto daemon = Daemon::Create(options_, Clock::Real());
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    thread_ = std::thread([this] { exit_code_ = daemon_->Run(signals_.get()); });
    return coordinator_.Wait(0);
  }
  // Messages until one is a report that `wanted` accepts, each acknowledged.
  template <typename Wanted>
  v1::TaskReport WaitForReport(FakeCoordinator::Stream& stream, Wanted&& wanted) {
    while (true) {
      const v1::AgentMessage message = stream.Next();
      if (message.has_report()) {
        AckReport(stream, message.report().seq());
        if (wanted(message.report())) {
          return message.report();
        }
      }
    }
  }

  nvml::FakeState fake_;
  WorkerOptions options_;
};

TEST_F(GpuDaemonTest, Hello_Gpu_IsTheInventory) {
  const v1::Hello hello = Greet(StartGpuDaemon());
  EXPECT_THAT(hello.worker_id(), HasSubstr("-gpu1"));
  EXPECT_EQ(hello.device().kind(), "cuda");
  EXPECT_EQ(hello.device().uuid(), "GPU-1");
  EXPECT_GE(hello.device().threads(), 1);
  Signal();
  EXPECT_EQ(WaitForExit(), kExitOk);
}

TEST_F(GpuDaemonTest, Create_SecondDaemonOnTheGpu_IsRefused) {
  const auto first = Daemon::Create(options_, Clock::Real());
  ASSERT_TRUE(first.ok()) << first.status();
  options_.device = "cuda:GPU-1";
  options_.name = "another-name";
  EXPECT_EQ(Daemon::Create(options_, Clock::Real()).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(GpuDaemonTest, Task_Trainer_SeesTheOneGpuAndItsStepsGetTheEnergy) {
  FakeCoordinator::Stream& stream = StartGpuDaemon();
  Greet(stream);
  StartScript(stream, "task;env:CUDA_VISIBLE_DEVICES;run_info;wait_control");
  std::string lines;
  const auto info = WaitForReport(stream, [&](const v1::TaskReport& report) {
    for (const v1::LogLine& line : report.logs().lines()) {
      lines += line.text() + "\n";
    }
    return report.has_run_info();
  });
  EXPECT_EQ(info.run_info().device(), "cuda:1") << "as people know it";
  while (lines.find("CUDA_VISIBLE_DEVICES") == std::string::npos) {
    WaitForReport(stream, [&](const v1::TaskReport& report) {
      for (const v1::LogLine& line : report.logs().lines()) {
        lines += line.text() + "\n";
      }
      return true;
    });
  }
  EXPECT_THAT(lines, HasSubstr("cuda:0 "));
  EXPECT_THAT(lines, HasSubstr("CUDA_VISIBLE_DEVICES=GPU-1"));
  Signal();
  WaitForReport(stream, [](const v1::TaskReport& report) { return report.has_exit(); });
  EXPECT_EQ(WaitForExit(), kExitOk);
}

TEST_F(GpuDaemonTest, Exit_MemoryHeld_IsUncleanAndTheWorkerUnhealthyUntilItIsFreed) {
  FakeCoordinator::Stream& stream = StartGpuDaemon();
  Greet(stream);
  StartScript(stream, "run_info;wait_control");
  WaitForReport(stream, [](const v1::TaskReport& report) { return report.has_run_info(); });
  fake_.Set({{"1.used", std::to_string(1LL << 30)}});
  v1::CoordinatorMessage kill;
  kill.mutable_kill()->set_job_id("job");
  kill.mutable_kill()->set_epoch(1);
  stream.Say(kill);
  const auto exit =
      WaitForReport(stream, [](const v1::TaskReport& report) { return report.has_exit(); });
  EXPECT_FALSE(exit.exit().clean());
  EXPECT_THAT(exit.exit().unclean_reason(), HasSubstr("GPU-1 has"));
  stream.WaitForHealth(false);
  fake_.Set({{"1.used", "0"}});
  stream.WaitForHealth(true);
  Signal();
  EXPECT_EQ(WaitForExit(), kExitOk);
}

// On a busy disk each takes seconds, in which a job may wait for this worker.
TEST_F(DaemonTest, SecondStart_WaitsForNoFsync) {
  StartDaemon();
  Signal();
  EXPECT_EQ(WaitForExit(), kExitOk);
  daemon_.reset();
  ASSERT_TRUE(fault::Configure("io.sync=error,io.sync_folder=error").ok());
  const auto again = Daemon::Create(Options(), Clock::Real());
  ASSERT_TRUE(fault::Configure("").ok());
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST_F(DaemonTest, Create_NoTrainer_NamesThePath) {
  WorkerOptions options = Options();
  options.trainer = "/nonexistent/trainer";
  EXPECT_THAT(std::string(Daemon::Create(options, Clock::Real()).status().message()),
              HasSubstr("/nonexistent/trainer"));
}

}  // namespace
}  // namespace hearth::worker
