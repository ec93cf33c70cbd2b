#include "worker/daemon/supervise/supervisor.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/daemon/confine/confinement.h"

namespace hearth::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

// Records what it is told and lets a test wait for it.
class Recorder : public TrainerListener {
 public:
  void OnTrainerMessage(const TaskKey& key, v1::FromTrainer message) override {
    absl::MutexLock lock(&mu_);
    if (message.has_log()) {
      lines_.push_back(key.job_id + ": " + message.log().text());
    }
    messages_.push_back(std::move(message));
  }
  void OnTrainerOutput(const TaskKey& key, std::string_view level, std::string text) override {
    absl::MutexLock lock(&mu_);
    lines_.push_back(key.job_id + " " + std::string(level) + ": " + text);
  }
  void OnTrainerDying(const TaskKey& /*key*/,
                      const ExitFacts& facts,
                      bool known,
                      absl::Duration /*dying_for*/) override {
    absl::MutexLock lock(&mu_);
    dying_.push_back({facts, known});
  }
  void OnTrainerExit(const TaskKey& /*key*/, const ExitFacts& facts) override {
    absl::MutexLock lock(&mu_);
    exits_.push_back(facts);
  }

  std::vector<ExitFacts> WaitForExits(size_t count = 1) {
    const auto enough = [&] { return exits_.size() >= count; };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&enough), kLong));
    return exits_;
  }
  std::vector<std::pair<ExitFacts, bool>> WaitForDying(size_t count = 1) {
    const auto enough = [&] { return dying_.size() >= count; };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&enough), kLong));
    EXPECT_TRUE(exits_.empty());
    return dying_;
  }
  size_t dying() {
    absl::MutexLock lock(&mu_);
    return dying_.size();
  }
  // The text of the first line that contains `part`.
  std::string WaitForLine(const std::string& part) {
    std::string found;
    const auto seen = [&] {
      for (const std::string& line : lines_) {
        if (absl::StrContains(line, part)) {
          found = line;
          return true;
        }
      }
      return false;
    };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&seen), kLong)) << part;
    return found;
  }
  std::vector<std::string> lines() {
    absl::MutexLock lock(&mu_);
    return lines_;
  }
  std::vector<v1::FromTrainer> messages() {
    absl::MutexLock lock(&mu_);
    return messages_;
  }

 private:
  absl::Mutex mu_;
  std::vector<v1::FromTrainer> messages_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
  std::vector<ExitFacts> exits_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<ExitFacts, bool>> dying_
      ABSL_GUARDED_BY(mu_);  // and whether it is known how
};

class SupervisorTest : public ::testing::Test {
 protected:
  void SetUp() override { Make(HEARTH_FAKE_TRAINER); }

  void Make(const std::string& program, std::shared_ptr<const Confinement> confinement = nullptr) {
    Supervisor::Options options;
    options.trainer.confinement = std::move(confinement);
    options.trainer.program = program;
    options.trainer.environment = {"HEARTH_TEST=1"};
    auto supervisor = Supervisor::Create(options, Clock::Real(), recorder_);
    ASSERT_TRUE(supervisor.ok());
    supervisor_ = *std::move(supervisor);
  }

  TaskKey Start(const std::string& script, const std::string& job = "job", int64_t epoch = 1) {
    v1::Task task;
    task.set_job_id(job);
    task.set_epoch(epoch);
    task.mutable_spec()->set_name(script);
    supervisor_->Start(task);
    return {job, epoch};
  }

  // Process id in a line "... grandchild PID".
  pid_t WaitForGrandchild() {
    const std::string line = recorder_.WaitForLine("grandchild");
    pid_t pid = 0;
    EXPECT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &pid));
    return pid;
  }

  Recorder recorder_;
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, Start_WellBehavedTrainer_RelaysInOrderThenCleanExit) {
  Start("log:hello;steps:3;finish");
  const auto exits = recorder_.WaitForExits();
  EXPECT_EQ(exits[0].wait_status, 0);
  EXPECT_TRUE(exits[0].clean);
  const auto messages = recorder_.messages();
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].log().text(), "hello");
  EXPECT_EQ(messages[1].step().step(), 1);
  EXPECT_EQ(messages[3].step().step(), 3);
  EXPECT_EQ(messages[4].exit().reason(), v1::EXIT_REASON_FINISHED);
}

TEST_F(SupervisorTest, Start_Trainer_LeadsSessionAndGroupWithPipeOnThree) {
  Start("ids");
  EXPECT_THAT(recorder_.WaitForLine("own"),
              HasSubstr("own session 1 own group 1 fd 3 no new privileges 1"));
}

TEST_F(SupervisorTest, Confined_Trainer_CannotMakeCallsThatNoTrainerNeeds) {
  supervisor_.reset();
  ConfinementOptions options;
  options.checkpoint_root = ::testing::TempDir();
  auto confinement = Confinement::Prepare(options, {HEARTH_FAKE_TRAINER});
  ASSERT_TRUE(confinement.ok()) << confinement.status();
  Make(HEARTH_FAKE_TRAINER, std::make_shared<const Confinement>(*std::move(confinement)));
  Start("calls;log:confined", "confined");
  recorder_.WaitForLine("confined: confined");
  const std::string denied = ErrnoText(EPERM);
  for (const char* call : {"keyctl", "unshare", "io_uring_setup"}) {
    EXPECT_THAT(recorder_.lines(), Contains(absl::StrCat("confined: call ", call, ": ", denied)));
  }
  EXPECT_THAT(recorder_.lines(),
              Contains(absl::StrCat("confined: call clone3: ", ErrnoText(ENOSYS))));
  EXPECT_THAT(recorder_.lines(), Contains("confined: call mlock: done"));
  EXPECT_THAT(recorder_.lines(), Contains("confined: call memfd_create: done"));
}

TEST_F(SupervisorTest, Output_StdoutAndStderr_BecomeLinesPartialOnesToo) {
  Start("print:one\n;print:two;eprint:trouble\n;exit:3");
  const auto exits = recorder_.WaitForExits();
  EXPECT_EQ(exits[0].wait_status, 3);
  EXPECT_EQ(exits[0].last_words, "trouble");
  EXPECT_THAT(recorder_.lines(), Contains("job info: one"));
  EXPECT_THAT(recorder_.lines(), Contains("job info: two"));
  EXPECT_THAT(recorder_.lines(), Contains("job warning: trouble"));
}

TEST_F(SupervisorTest, Start_NoSuchProgram_ReportsStartError) {
  Make("/nonexistent/hearth-trainer");
  Start("finish");
  const auto exits = recorder_.WaitForExits();
  EXPECT_THAT(exits[0].start_error, HasSubstr("/nonexistent/hearth-trainer"));
  EXPECT_TRUE(exits[0].clean);
}

TEST_F(SupervisorTest, Send_Control_ReachesTrainer) {
  const TaskKey key = Start("wait_control");
  v1::ToTrainer message;
  message.mutable_control()->set_bit(v1::CONTROL_BIT_PAUSE);
  supervisor_->Send(key, message);
  recorder_.WaitForExits();
  EXPECT_EQ(recorder_.messages().back().exit().reason(), v1::EXIT_REASON_PAUSED);
}

TEST_F(SupervisorTest, Send_AnotherEpoch_IsDropped) {
  Start("log:up;wait_control", "job", 2);
  recorder_.WaitForLine("up");
  v1::ToTrainer message;
  message.mutable_control()->set_bit(v1::CONTROL_BIT_PAUSE);
  supervisor_->Send({"job", 1}, message);
  message.mutable_control()->set_bit(v1::CONTROL_BIT_STOP);
  supervisor_->Send({"job", 2}, message);
  recorder_.WaitForExits();
  EXPECT_EQ(recorder_.messages().back().exit().reason(), v1::EXIT_REASON_STOPPED);
}

TEST_F(SupervisorTest, Kill_NoGrace_EndsBySigkillAtOnce) {
  const TaskKey key = Start("log:up;hang");
  recorder_.WaitForLine("up");
  EXPECT_GT(supervisor_->running_pid(), 0);
  supervisor_->Kill(key, absl::ZeroDuration());
  const auto exits = recorder_.WaitForExits();
  EXPECT_EQ(exits[0].wait_status, -SIGKILL);
  EXPECT_TRUE(exits[0].clean);
}

TEST_F(SupervisorTest, Kill_Grace_TermSuffices) {
  const TaskKey key = Start("log:up;hang");
  recorder_.WaitForLine("up");
  supervisor_->Kill(key, kLong);
  EXPECT_EQ(recorder_.WaitForExits()[0].wait_status, -SIGTERM);
}

TEST_F(SupervisorTest, Kill_ChildAndGrandchildIgnoreTerm_WholeGroupIsGone) {
  const TaskKey key = Start("ignore_term;grandchild;hang");
  const pid_t grandchild = WaitForGrandchild();
  EXPECT_EQ(kill(grandchild, 0), 0);
  supervisor_->Kill(key, absl::Milliseconds(20));
  const auto exits = recorder_.WaitForExits();
  EXPECT_EQ(exits[0].wait_status, -SIGKILL);
  EXPECT_TRUE(exits[0].clean);
  EXPECT_EQ(kill(grandchild, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(SupervisorTest, Exit_GrandchildLeftBehind_IsKilledBeforeTheReport) {
  Start("grandchild;finish");
  const pid_t grandchild = WaitForGrandchild();
  EXPECT_TRUE(recorder_.WaitForExits()[0].clean);
  EXPECT_EQ(kill(grandchild, 0), -1);
}

TEST_F(SupervisorTest, Exit_StragglerInAnotherGroupOfTheSession_IsKilledToo) {
  Start("escapee;finish");
  const pid_t grandchild = WaitForGrandchild();
  EXPECT_TRUE(recorder_.WaitForExits()[0].clean);
  EXPECT_EQ(kill(grandchild, 0), -1);
}

TEST_F(SupervisorTest, Exit_TrainerCrashes_ReportsSignal) {
  Start("steps:2;crash");
  EXPECT_EQ(recorder_.WaitForExits()[0].wait_status, -SIGKILL);
  EXPECT_EQ(recorder_.messages().size(), 2u);
}

TEST_F(SupervisorTest, Read_Garbage_KillsTrainerAndSaysWhy) {
  Start("garbage;hang");
  const auto exits = recorder_.WaitForExits();
  EXPECT_EQ(exits[0].wait_status, -SIGKILL);
  EXPECT_THAT(exits[0].protocol_error, HasSubstr("frame of 4294967295 bytes"));
}

TEST_F(SupervisorTest, Destructor_RunningTrainer_IsKilledAndReported) {
  Start("ignore_term;log:up;hang");
  recorder_.WaitForLine("up");
  supervisor_.reset();
  EXPECT_EQ(recorder_.WaitForExits()[0].wait_status, -SIGKILL);
}

TEST_F(SupervisorTest, Environment_OfTheDaemon_WhatTrainingReadsReachesTheTrainer) {
  ASSERT_TRUE(SetEnv("NCCL_DEBUG", "WARN"));
  ASSERT_TRUE(SetEnv("CUDA_MODULE_LOADING", "LAZY"));
  ASSERT_TRUE(SetEnv("FORGE_TOKEN", "secret"));
  ASSERT_TRUE(SetEnv("NCCLISH", "no"));
  Start(
      "env:NCCL_DEBUG;env:CUDA_MODULE_LOADING;env:HEARTH_TEST;env:FORGE_TOKEN;env:NCCLISH;finish");
  recorder_.WaitForLine("NCCL_DEBUG=WARN");
  recorder_.WaitForLine("CUDA_MODULE_LOADING=LAZY");
  recorder_.WaitForLine("HEARTH_TEST=1");
  recorder_.WaitForLine("FORGE_TOKEN=(not set)");
  recorder_.WaitForLine("NCCLISH=(not set)");
  recorder_.WaitForExits();
}

// Limits far below the real ones, on the real clock: what is tested is that a real stop is seen.
class SilenceTest : public SupervisorTest {
 protected:
  void SetUp() override {}

  void MakeWith(SilenceLimits limits) {
    Supervisor::Options options;
    options.trainer.program = HEARTH_FAKE_TRAINER;
    options.child.silence = limits;
    auto supervisor = Supervisor::Create(options, Clock::Real(), recorder_);
    ASSERT_TRUE(supervisor.ok());
    supervisor_ = *std::move(supervisor);
  }
};

TEST_F(SilenceTest, StoppedTrainer_IsKilledAndTheReasonSaysSo) {
  MakeWith({kLong, absl::Milliseconds(100), kLong});
  Start("log:up;hang");
  recorder_.WaitForLine("up");
  ASSERT_EQ(kill(supervisor_->running_pid(), SIGSTOP), 0);
  const ExitFacts facts = recorder_.WaitForExits()[0];
  EXPECT_EQ(facts.wait_status, -SIGKILL);
  EXPECT_TRUE(facts.clean);
  EXPECT_THAT(facts.hung, ::testing::MatchesRegex("stopped: no heartbeat for .*, process state T"));
  EXPECT_GE(facts.silent, absl::Milliseconds(100));
}

TEST_F(SilenceTest, TrainerHeldByADebugger_LivesUntilTheLongerLimit) {
  MakeWith({absl::Seconds(2), absl::Milliseconds(100), kLong});
  Start("log:up;hang");
  recorder_.WaitForLine("up");
  const pid_t pid = supervisor_->running_pid();
  ASSERT_EQ(ptrace(PTRACE_SEIZE, pid, nullptr, nullptr), 0) << ErrnoText(errno);
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr), 0);
  const ExitFacts facts = recorder_.WaitForExits()[0];
  EXPECT_THAT(facts.hung, ::testing::MatchesRegex("hung: no heartbeat for .*, process state t"));
  EXPECT_GE(facts.silent, absl::Seconds(2));
}

TEST_F(SilenceTest, TrainerThatSaysThatItLives_IsLeftAlone) {
  MakeWith({absl::Milliseconds(400), absl::Milliseconds(100), kLong});
  Start("alive:12;finish");  // every 100 ms
  const ExitFacts facts = recorder_.WaitForExits()[0];
  EXPECT_EQ(facts.hung, "");
  EXPECT_EQ(facts.wait_status, 0);
  EXPECT_EQ(recorder_.messages().size(), 1u) << "heartbeats are not passed on";
}

TEST_F(SilenceTest, MuteTrainer_IsKilledAfterTheFirstLimit) {
  MakeWith({absl::Milliseconds(100), kLong, absl::Milliseconds(300)});
  Start("hang");
  const ExitFacts facts = recorder_.WaitForExits()[0];
  EXPECT_GE(facts.silent, absl::Milliseconds(300));
  EXPECT_THAT(facts.hung, HasSubstr("hung"));
}

// The process's state is the test's own: a real one takes as long to end as its driver pleases.
class DyingTest : public SupervisorTest {
 protected:
  void SetUp() override {
    Supervisor::Options options;
    options.trainer.program = HEARTH_FAKE_TRAINER;
    options.child.read_stat = [this](pid_t pid) -> absl::StatusOr<ProcessStat> {
      absl::StatusOr<ProcessStat> stat = ReadProcessStat(pid);
      absl::MutexLock lock(&mu_);
      if (stat.ok() && exiting_) {
        stat->exiting = true;
        stat->exit_code = exit_code_;
      }
      return stat;
    };
    options.child.device = &device_;
    auto supervisor = Supervisor::Create(options, Clock::Real(), recorder_);
    ASSERT_TRUE(supervisor.ok());
    supervisor_ = *std::move(supervisor);
  }
  // The supervisor ends before what it points to.
  void TearDown() override { supervisor_.reset(); }

  void SeemToExit(int code) {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    exit_code_ = code;
  }

  // A driver that gives memory back when the test says so.
  struct HeldDevice : DeviceCheck {
    std::optional<int64_t> Baseline() override { return 0; }
    std::optional<std::string> Held(pid_t, std::optional<int64_t>, absl::Duration) override {
      return held ? "held" : "";
    }
    std::atomic<bool> held = false;
  };

  absl::Mutex mu_;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  int exit_code_ ABSL_GUARDED_BY(mu_) = 0;
  HeldDevice device_;
};

TEST_F(DyingTest, ProcessThatDoesNotGetGone_IsToldOnceAndTheExitFollows) {
  Start("log:up;hang");
  recorder_.WaitForLine("up");
  SeemToExit(SIGKILL);
  const auto dying = recorder_.WaitForDying();
  EXPECT_TRUE(dying[0].second);
  EXPECT_EQ(dying[0].first.wait_status, -SIGKILL);
  ASSERT_EQ(kill(supervisor_->running_pid(), SIGTERM), 0);
  const ExitFacts facts = recorder_.WaitForExits()[0];
  EXPECT_EQ(facts.wait_status, -SIGTERM) << "what counts is the real end";
  EXPECT_TRUE(facts.before_kill);
  EXPECT_EQ(recorder_.dying(), 1u);
}

TEST_F(DyingTest, HowItEndsIsNotToBeSeen_SaysSo) {
  Start("log:up;hang");
  recorder_.WaitForLine("up");
  SeemToExit(0);
  EXPECT_FALSE(recorder_.WaitForDying()[0].second);
}

TEST_F(DyingTest, KilledByTheDaemonAndSlow_IsToldToo) {
  device_.held = true;
  const TaskKey key = Start("log:up;hang");
  recorder_.WaitForLine("up");
  supervisor_->Kill(key, absl::ZeroDuration());
  const auto dying = recorder_.WaitForDying();
  EXPECT_TRUE(dying[0].second);
  EXPECT_EQ(dying[0].first.wait_status, -SIGKILL);
  device_.held = false;
  EXPECT_FALSE(recorder_.WaitForExits()[0].before_kill);
}

TEST_F(DyingTest, KillOfOneThatIsDyingAlready_IsNoCause) {
  const TaskKey key = Start("log:up;hang");
  recorder_.WaitForLine("up");
  SeemToExit(SIGKILL);
  supervisor_->Kill(key, absl::ZeroDuration());
  EXPECT_TRUE(recorder_.WaitForExits()[0].before_kill);
}

TEST_F(DyingTest, QuickEnd_IsNotTold) {
  Start("log:up;crash");
  EXPECT_TRUE(recorder_.WaitForExits()[0].before_kill);
  EXPECT_EQ(recorder_.dying(), 0u);
}

// What it said just before comes first, whoever reads it.
TEST_F(DyingTest, LastWordsBeforeTheNotice_AreDelivered) {
  device_.held = true;
  Start("finish");
  recorder_.WaitForDying();
  const auto messages = recorder_.messages();
  ASSERT_FALSE(messages.empty());
  EXPECT_EQ(messages.back().exit().reason(), v1::EXIT_REASON_FINISHED);
  device_.held = false;
  recorder_.WaitForExits();
}

TEST(ProcessStatTest, Parse_FirstThreadIsExiting_IsSeenInFlagsOrPendingSigkill) {
  // PF_EXITING in field 9; SIGKILL in field 31; exit code in field 52.
  const auto line = [](int64_t flags, int pending) {
    return absl::StrCat("42 (t) D 7 40 41 0 -1 ", flags,
                        " 1 2 3 4 250 50 0 0 20 0 1 0 100 1000 3 18446744073 1 1 1 1 1 ", pending,
                        " 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1 1 9");
  };
  EXPECT_FALSE(ParseProcessStat(line(4194560, 0))->exiting);
  EXPECT_EQ(ParseProcessStat(line(4194560, 0))->exit_code, 0);
  EXPECT_TRUE(ParseProcessStat(line(4194560 | 0x4, 0))->exiting);
  EXPECT_TRUE(ParseProcessStat(line(4194560, 0x100))->exiting);
  EXPECT_FALSE(ParseProcessStat(line(4194560, 0x4000))->exiting) << "SIGTERM may be handled";
  EXPECT_EQ(ParseProcessStat(line(4194560 | 0x4, 0))->exit_code, 9);
}

TEST(ProcessStatTest, Parse_NameWithParenthesesAndBlanks_FindsFields) {
  const auto stat = ParseProcessStat(
      "42 (a) b (c) S 7 40 41 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 1 0 100 1000 3 18446744073 1");
  ASSERT_TRUE(stat.ok()) << stat.status();
  EXPECT_EQ(stat->pid, 42);
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->group, 40);
  EXPECT_EQ(stat->session, 41);
  EXPECT_DOUBLE_EQ(stat->cpu_seconds, 300.0 / static_cast<double>(sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(stat->resident_bytes, 3 * sysconf(_SC_PAGESIZE));
  EXPECT_FALSE(ParseProcessStat("garbage").ok());
}

}  // namespace
}  // namespace hearth::worker
