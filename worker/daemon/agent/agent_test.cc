#include "worker/daemon/agent/agent.h"

#include <signal.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/private_files.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/daemon/fake_coordinator.h"
#include "tests/support/daemon/fake_text_host.h"
#include "worker/daemon/disk/disk_worker.h"
#include "worker/daemon/supervise/supervisor.h"

namespace hearth::worker {
namespace {

using ::testing::HasSubstr;

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    root_ = std::make_unique<CheckpointRoot>(*CheckpointRoot::Open(dir_));
    TaskTable::Options options;
    options.identity.set_worker_id("w1");
    options.identity.set_incarnation("abc");
    table_ = std::make_unique<TaskTable>(options, *root_, Clock::Real());
    disk_ = std::make_unique<DiskWorker>(*root_, Env::Real(), [this](v1::AgentMessage answer) {
      table_->Answer(std::move(answer));
    });
    Supervisor::Options supervisor;
    supervisor.trainer.program = HEARTH_FAKE_TRAINER;
    supervisor_ = *Supervisor::Create(supervisor, Clock::Real(), *table_);
    table_->Attach(*supervisor_, *disk_, texts_);
  }
  ~AgentTest() override {
    agent_.reset();
    supervisor_.reset();
    disk_.reset();
    table_.reset();
  }

  void Dial(const std::string& coordinators,
            absl::Duration name_taken_grace = kLong,
            rpc::Backoff::Options backoff = {.initial = absl::Milliseconds(5),
                                             .cap = absl::Milliseconds(50)}) {
    Agent::Options options{.coordinators = *rpc::CoordinatorList::Parse(coordinators),
                           .tls = {},
                           .token_file = token_file_,
                           .backoff = backoff};
    options.eager_cap = absl::Milliseconds(100);
    options.name_taken_grace = name_taken_grace;
    options.refused_pause = absl::Milliseconds(5);
    agent_ = std::make_unique<Agent>(
        options, *table_, Clock::Real(), [this] { table_->Tick({}, ""); },
        [this](const absl::Status& status) {
          absl::MutexLock lock(&mu_);
          fatal_ = status;
        });
  }
  // The first stream, after its Hello and Welcome.
  FakeCoordinator::Stream& DialAndGreet(FakeCoordinator& coordinator) {
    Dial(coordinator.address());
    FakeCoordinator::Stream& stream = coordinator.Wait(0);
    Greet(stream);
    return stream;
  }
  // ... and after it has been told to start a task.
  FakeCoordinator::Stream& DialAndStart(FakeCoordinator& coordinator, const std::string& script) {
    FakeCoordinator::Stream& stream = DialAndGreet(coordinator);
    StartScript(stream, script);
    return stream;
  }
  absl::Status WaitForFatal() {
    const auto there = [this] { return !fatal_.ok(); };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&there), kLong));
    return fatal_;
  }

  static void Control(FakeCoordinator::Stream& stream, v1::ControlBit bit, int64_t generation = 1) {
    v1::CoordinatorMessage message;
    message.mutable_control()->set_job_id("job");
    message.mutable_control()->set_epoch(1);
    message.mutable_control()->set_bit(bit);
    stream.Say(message, generation);
  }
  // Reports up to the exit, acknowledging none; checks that seq has no gap from `first`.
  static std::vector<v1::TaskReport> ReadToExit(FakeCoordinator::Stream& stream,
                                                int64_t first = 1) {
    std::vector<v1::TaskReport> out;
    do {
      const v1::AgentMessage message = stream.Next();
      if (!message.has_report()) {
        ADD_FAILURE() << message.ShortDebugString();
        break;
      }
      out.push_back(message.report());
      EXPECT_EQ(out.back().seq(), first++);
    } while (!out.back().has_exit());
    return out;
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  std::string token_file_;  // of Dial
  std::unique_ptr<CheckpointRoot> root_;
  FakeTextHost texts_;
  std::unique_ptr<TaskTable> table_;
  std::unique_ptr<DiskWorker> disk_;
  std::unique_ptr<Supervisor> supervisor_;
  absl::Mutex mu_;
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, Connect_Coordinator_HelloThenHeartbeats) {
  FakeCoordinator coordinator;
  Dial(coordinator.address());
  FakeCoordinator::Stream& stream = coordinator.Wait(0);
  const v1::Hello hello = Greet(stream);
  EXPECT_EQ(hello.worker_id(), "w1");
  EXPECT_EQ(hello.tasks_size(), 0);
  stream.WaitForHeartbeat();
}

TEST_F(AgentTest, Kick_BeforeTheStreamIsOpen_HelloStillGoesFirst) {
  FakeCoordinator coordinator;
  absl::Mutex mu;
  bool ended = false;
  StreamSession session(*rpc::Connect(coordinator.address(), {}, /*use_tls=*/false), {}, *table_,
                        [&mu, &ended] {
                          absl::MutexLock lock(&mu);
                          ended = true;
                        });
  table_->Tick({}, "");  // a heartbeat is due, as after a while without a coordinator
  session.Kick();        // as a trainer's report does when it comes just now
  session.Start();
  EXPECT_TRUE(coordinator.Wait(0).Next().has_hello());
  session.Finish();
  absl::MutexLock lock(&mu);
  EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&ended), kLong));
}

TEST_F(AgentTest, Task_WholeLife_IsReportedOnceInOrder) {
  FakeCoordinator coordinator;
  FakeCoordinator::Stream& stream = DialAndStart(coordinator, "steps:3;kv_wait:peer;finish");
  std::vector<std::string> kinds;
  bool answered = false;
  while (true) {
    const v1::AgentMessage message = stream.Next();
    if (message.has_kv_wait()) {
      EXPECT_EQ(message.kv_wait().key(), "peer");
      v1::CoordinatorMessage value;
      value.mutable_kv_value()->set_job_id("job");
      value.mutable_kv_value()->set_epoch(1);
      value.mutable_kv_value()->mutable_value()->set_key("peer");
      value.mutable_kv_value()->mutable_value()->set_value("here");
      stream.Say(value);
      answered = true;
      continue;
    }
    ASSERT_TRUE(message.has_report()) << message.ShortDebugString();
    const v1::TaskReport& report = message.report();
    EXPECT_EQ(report.seq(), static_cast<int64_t>(kinds.size()) + 1);
    kinds.push_back(report.has_step()   ? "step"
                    : report.has_logs() ? report.logs().lines(0).text()
                                        : "exit");
    if (report.has_exit()) {
      EXPECT_EQ(report.exit().exit().reason(), v1::EXIT_REASON_FINISHED);
      EXPECT_TRUE(report.exit().clean());
      break;
    }
  }
  EXPECT_TRUE(answered);
  EXPECT_THAT(kinds, testing::ElementsAre("step", "step", "step", "kv here", "exit"));
}

TEST_F(AgentTest, StreamLost_MidRun_TrainerLivesAndReportsComeAgainExactly) {
  FakeCoordinator coordinator;
  FakeCoordinator::Stream& first = DialAndStart(coordinator, "steps:5;wait_control");
  for (int64_t seq = 1; seq <= 5; ++seq) {
    EXPECT_EQ(first.Next().report().seq(), seq);
  }
  const pid_t pid = supervisor_->running_pid();
  AckReport(first, 2);
  v1::CoordinatorMessage inspect;  // its answer shows that the ack was taken
  inspect.mutable_inspect()->set_request_id(9);
  first.Say(inspect);
  EXPECT_EQ(first.Next().inspect_result().request_id(), 9);
  first.Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting"));

  FakeCoordinator::Stream& second = coordinator.Wait(1);
  const v1::Hello hello = Greet(second, 2);
  ASSERT_EQ(hello.tasks_size(), 1);
  EXPECT_TRUE(hello.tasks(0).running());
  EXPECT_EQ(hello.tasks(0).first_unacked_seq(), 3);
  EXPECT_EQ(hello.tasks(0).last_seq(), 5);
  EXPECT_EQ(supervisor_->running_pid(), pid);
  for (int64_t seq = 3; seq <= 5; ++seq) {
    const v1::AgentMessage message = second.Next();
    EXPECT_EQ(message.report().seq(), seq);
    EXPECT_EQ(message.report().step().step(), seq);
  }
  Control(second, v1::CONTROL_BIT_PAUSE, 2);
  const auto rest = ReadToExit(second, 6);
  EXPECT_EQ(rest.back().exit().exit().reason(), v1::EXIT_REASON_PAUSED);
  EXPECT_EQ(rest.back().exit().exit().step(), 5);
}

TEST_F(AgentTest, StreamLost_PausesStayShortAtFirst) {
  FakeCoordinator coordinator;
  Dial(coordinator.address(), kLong, {.initial = absl::Hours(1), .cap = absl::Hours(1)});
  for (size_t lost = 0; lost < 3; ++lost) {  // the last two without ever having said Welcome
    FakeCoordinator::Stream& stream = coordinator.Wait(lost);
    if (lost == 0) {
      Greet(stream);
    }
    stream.Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting"));
  }
  Greet(coordinator.Wait(3));
}

TEST_F(AgentTest, TaskEnds_WhileNobodyListens_IsReportedAsItWas) {
  FakeCoordinator coordinator;
  FakeCoordinator::Stream& first = DialAndStart(coordinator, "steps:1;wait_control");
  EXPECT_EQ(first.Next().report().seq(), 1);
  Control(first, v1::CONTROL_BIT_STOP);
  first.Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  // The control word may or may not have made it; nothing else ends this task, so say it again.
  FakeCoordinator::Stream& second = coordinator.Wait(1);
  Greet(second);
  Control(second, v1::CONTROL_BIT_STOP);
  EXPECT_EQ(ReadToExit(second).back().exit().exit().reason(), v1::EXIT_REASON_STOPPED);
}

TEST_F(AgentTest, StaleGeneration_Coordinator_IsLeftForTheOther) {
  FakeCoordinator old_one;
  FakeCoordinator new_one;
  Dial(absl::StrCat(new_one.address(), ",", old_one.address()));
  FakeCoordinator::Stream& first = new_one.Wait(0);
  Greet(first, 7);
  first.WaitForHeartbeat();
  // The new one turns the agent away before a welcome, so it tries the old one, whose generation it
  // must not accept.
  first.Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy"));
  FakeCoordinator::Stream& again = new_one.Wait(1);
  EXPECT_EQ(again.Next().hello().generation(), 7);
  again.Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy"));
  FakeCoordinator::Stream& stale = old_one.Wait(0);
  Greet(stale, 6);
  stale.WaitForEnd();
  Greet(new_one.Wait(2), 7);
}

TEST_F(AgentTest, Dial_FirstCoordinatorDown_FailsOverToTheSecond) {
  std::string dead;
  {
    FakeCoordinator gone;
    dead = gone.address();
  }
  FakeCoordinator alive;
  Dial(absl::StrCat(dead, ",", alive.address()));
  Greet(alive.Wait(0));
}

TEST_F(AgentTest, Hello_Aborted_IsFatal) {
  FakeCoordinator coordinator;
  Dial(coordinator.address());
  coordinator.Wait(0).Close(rpc::ToGrpc(
      rpc::MakeError(absl::StatusCode::kAborted, "a newer daemon", "STALE_INCARNATION")));
  const absl::Status status = WaitForFatal();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a newer daemon"));
}

TEST_F(AgentTest, Hello_AbortedByAStaleCoordinator_IsNotFatal) {
  FakeCoordinator coordinator;
  Dial(coordinator.address());
  coordinator.Wait(0).Close(
      rpc::ToGrpc(rpc::MakeError(absl::StatusCode::kAborted, "old", "STALE_GENERATION")));
  Greet(coordinator.Wait(1));
}

TEST_F(AgentTest, Hello_NameTaken_IsFatalAfterTheGrace) {
  FakeCoordinator coordinator;
  Dial(coordinator.address(), absl::Milliseconds(1));
  const grpc::Status taken(grpc::StatusCode::ALREADY_EXISTS, "name taken");
  coordinator.Wait(0).Close(taken);
  coordinator.Wait(1).Close(taken);
  EXPECT_EQ(WaitForFatal().code(), absl::StatusCode::kAlreadyExists);
}

// It had the name: whoever has it now may go again.
TEST_F(AgentTest, Hello_NameTakenAfterAWelcome_IsAskedForAgain) {
  FakeCoordinator coordinator;
  Dial(coordinator.address(), absl::Milliseconds(1));
  FakeCoordinator::Stream& stream = coordinator.Wait(0);
  Greet(stream);
  stream.WaitForHeartbeat();
  stream.Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "restart"));
  const grpc::Status taken(grpc::StatusCode::ALREADY_EXISTS, "name taken");
  for (int i = 1; i < 4; ++i) {
    coordinator.Wait(i).Close(taken);
  }
  Greet(coordinator.Wait(4));
}

TEST_F(AgentTest, Token_MissingThenRefusedThenTaken_IsTriedAgain) {
  FakeCoordinator coordinator;
  token_file_ = dir_ + "/w1.token";
  Dial(coordinator.address());
  while (agent_->counters().failed_attempts < 2) {
    std::this_thread::yield();
  }
  ASSERT_TRUE(WritePrivateFile(token_file_, "old\n").ok());
  FakeCoordinator::Stream& refused = coordinator.Wait(0);
  EXPECT_EQ(coordinator.authorization(), "Bearer old");
  ASSERT_TRUE(WritePrivateFile(token_file_, "new\n").ok());
  refused.Close(grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "revoked"));
  FakeCoordinator::Stream& second = coordinator.Wait(1);
  EXPECT_EQ(coordinator.authorization(), "Bearer new");
  second.Close(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "another worker's token"));
  Greet(coordinator.Wait(2));
}

TEST_F(AgentTest, Kill_OverTheStream_EndsWithCleanKilledExit) {
  FakeCoordinator coordinator;
  FakeCoordinator::Stream& stream = DialAndStart(coordinator, "ignore_term;grandchild;hang");
  EXPECT_TRUE(stream.Next().report().has_logs());
  v1::CoordinatorMessage kill_task;
  kill_task.mutable_kill()->set_job_id("job");
  kill_task.mutable_kill()->set_epoch(1);
  kill_task.mutable_kill()->set_grace_seconds(0.02);
  stream.Say(kill_task);
  const v1::TaskExit exit = ReadToExit(stream, 2).back().exit();
  EXPECT_EQ(exit.exit().reason(), v1::EXIT_REASON_KILLED);
  EXPECT_EQ(exit.wait_status(), -SIGKILL);
  EXPECT_TRUE(exit.clean());
}

TEST_F(AgentTest, Stop_AfterGoodbye_EndsTheStreamInOrder) {
  FakeCoordinator coordinator;
  FakeCoordinator::Stream& stream = DialAndGreet(coordinator);
  stream.WaitForHeartbeat();
  table_->SayGoodbye("done");
  const v1::AgentMessage message = stream.Next();
  EXPECT_EQ(message.goodbye().reason(), "done");
  agent_->Stop();
  stream.WaitForEnd();
  EXPECT_EQ(agent_->counters().connects, 1);
}

}  // namespace
}  // namespace hearth::worker
