#include "worker/daemon/supervise/task_table.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/daemon/fake_text_host.h"
#include "tests/support/daemon/fake_trainer_host.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeDisk : public DiskRequests {
 public:
  void Inspect(const v1::InspectPaths& request) override { inspected.push_back(request); }
  void Read(const v1::ReadCheckpointFile& request) override { read.push_back(request); }
  void Delete(const v1::DeleteCheckpointFolder& request) override { deleted.push_back(request); }
  void List(const v1::ListCheckpointFolders& request) override { listed.push_back(request); }
  std::vector<v1::InspectPaths> inspected;
  std::vector<v1::ReadCheckpointFile> read;
  std::vector<v1::DeleteCheckpointFolder> deleted;
  std::vector<v1::ListCheckpointFolders> listed;
};

class TaskTableTest : public ::testing::Test {
 protected:
  TaskTableTest() {
    root_ = std::make_unique<CheckpointRoot>(*CheckpointRoot::Open(dir_.string()));
    TaskTable::Options options;
    options.identity.set_worker_id("w");
    options.tasks.advertise_host = "10.0.0.1";
    options.tasks.threads = 3;
    table_ = std::make_unique<TaskTable>(options, *root_, clock_);
    table_->Attach(host_, disk_, texts_);
  }

  void Say(v1::CoordinatorMessage message, int64_t generation = 1) {
    message.set_generation(generation);
    const absl::Status status = table_->OnMessage(message);
    EXPECT_TRUE(status.ok()) << status;
  }
  void SayWelcome() {
    v1::CoordinatorMessage message;
    message.mutable_welcome()->set_heartbeat_seconds(2.0);
    Say(message);
  }
  void SayStart(const std::string& job, int64_t epoch, int32_t rank = 0) {
    v1::CoordinatorMessage message;
    v1::Task& task = *message.mutable_start()->mutable_task();
    task.set_job_id(job);
    task.set_epoch(epoch);
    task.set_rank(rank);
    Say(message);
  }
  void SayKill(const std::string& job, int64_t epoch, double grace) {
    v1::CoordinatorMessage message;
    message.mutable_kill()->set_job_id(job);
    message.mutable_kill()->set_epoch(epoch);
    message.mutable_kill()->set_grace_seconds(grace);
    Say(message);
  }
  void SayForget(const std::string& job, int64_t epoch) {
    v1::CoordinatorMessage message;
    message.mutable_forget()->set_job_id(job);
    message.mutable_forget()->set_epoch(epoch);
    Say(message);
  }
  void SayAck(const std::string& job, int64_t epoch, int64_t seq) {
    v1::CoordinatorMessage message;
    message.mutable_ack()->set_job_id(job);
    message.mutable_ack()->set_epoch(epoch);
    message.mutable_ack()->set_seq(seq);
    Say(message);
  }
  void Step(const std::string& job, int64_t epoch, int64_t step) {
    v1::FromTrainer message;
    message.mutable_step()->set_step(step);
    table_->OnTrainerMessage({job, epoch}, message);
  }
  void Wait(const std::string& job, int64_t epoch, const std::string& key) {
    v1::FromTrainer message;
    message.mutable_kv_wait()->set_key(key);
    table_->OnTrainerMessage({job, epoch}, message);
  }
  void Exit(const std::string& job, int64_t epoch, int status = 0) {
    ExitFacts facts;
    facts.wait_status = status;
    table_->OnTrainerExit({job, epoch}, facts);
  }
  // All messages that are ready, in short form.
  std::vector<std::string> Drain() {
    std::vector<std::string> out;
    while (auto message = table_->NextMessage()) {
      out.push_back(Short(*message));
    }
    return out;
  }
  static std::string Short(const v1::AgentMessage& message) {
    if (message.has_kv_wait()) {
      return "wait " + message.kv_wait().key();
    }
    if (message.has_heartbeat()) {
      return absl::StrCat("heartbeat ", message.heartbeat().job_id(), " ",
                          message.heartbeat().step());
    }
    if (!message.has_report()) {
      return message.ShortDebugString();
    }
    const v1::TaskReport& report = message.report();
    const std::string id =
        absl::StrCat(report.job_id(), ".", report.epoch(), "#", report.seq(), " ");
    switch (report.report_case()) {
      case v1::TaskReport::kStep:
        return absl::StrCat(id, "step ", report.step().step());
      case v1::TaskReport::kExit:
        return absl::StrCat(id, "exit ", v1::ExitReason_Name(report.exit().exit().reason()));
      case v1::TaskReport::kLogs:
        return absl::StrCat(id, "logs ", report.logs().lines_size());
      default:
        return id + report.ShortDebugString();
    }
  }

  FakeClock clock_;
  const TempDir temp_;
  const fs::path dir_ = temp_.path();
  FakeTrainerHost host_;
  FakeTextHost texts_;
  FakeDisk disk_;
  std::unique_ptr<CheckpointRoot> root_;
  std::unique_ptr<TaskTable> table_;
};

TEST_F(TaskTableTest, Start_Task_IsFilledIn) {
  SayStart("job", 2);
  ASSERT_EQ(host_.tasks.size(), 1u);
  EXPECT_EQ(host_.tasks[0].checkpoint_dir(), root_->path() + "/job/e2");
  EXPECT_EQ(host_.tasks[0].advertise_host(), "10.0.0.1");
  EXPECT_EQ(host_.tasks[0].threads(), 3);
  EXPECT_EQ(host_.tasks[0].device(), "cpu");
}

TEST_F(TaskTableTest, Step_DeviceWithCounter_GetsEnergySinceTheReportBefore) {
  double joules = 1000.0;
  TaskTable::Options options;
  options.energy = [&joules] { return std::optional<double>(joules); };
  table_ = std::make_unique<TaskTable>(options, *root_, clock_);
  table_->Attach(host_, disk_, texts_);
  table_->BeginSession();
  SayWelcome();
  SayStart("job", 1);
  v1::DeviceStatus status;
  status.set_power_watts(420.0);
  status.set_temperature_celsius(58.0);
  status.set_utilization_ratio(0.5);
  status.set_energy_joules(1000.0);
  table_->Tick(status, "");
  v1::FromTrainer info;
  info.mutable_run_info()->set_device("cuda:0");
  joules = 1300.0;  // while loading
  table_->OnTrainerMessage({"job", 1}, info);
  std::vector<double> energies;
  for (const double used : {70.0, 80.0, -500.0, 5.0}) {  // negative: the driver was reloaded
    joules += used;
    Step("job", 1, static_cast<int64_t>(energies.size()) + 1);
    energies.push_back(table_->snapshot().last_step->energy_joules());
  }
  EXPECT_THAT(energies, ElementsAre(70.0, 80.0, 0.0, 5.0));
  EXPECT_EQ(table_->snapshot().last_step->power_watts(), 420.0);
  EXPECT_EQ(table_->snapshot().last_step->temperature_celsius(), 58.0);
  EXPECT_EQ(table_->snapshot().last_step->utilization_ratio(), 0.5);
  v1::FromTrainer step;
  step.mutable_step()->set_energy_joules(9.0);
  table_->OnTrainerMessage({"job", 1}, step);
  EXPECT_EQ(table_->snapshot().last_step->energy_joules(), 9.0) << "what is there stands";
  status.set_energy_joules(1700.0);
  table_->Tick(status, "");
  EXPECT_EQ(table_->snapshot().energy_joules, 700.0) << "loading included";
}

TEST_F(TaskTableTest, Start_Repeated_StartsOnce) {
  SayStart("job", 1);
  SayStart("job", 1);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1"));
}

TEST_F(TaskTableTest, Start_BadJobId_IsRefusedByAnExitReport) {
  table_->BeginSession();
  SayWelcome();
  SayStart("../evil", 1);
  EXPECT_THAT(host_.calls, IsEmpty());
  EXPECT_THAT(Drain(), ElementsAre("../evil.1#1 exit EXIT_REASON_BAD_SPEC"));
}

TEST_F(TaskTableTest, Start_HigherEpoch_KillsOldFirst) {
  SayStart("job", 1);
  SayStart("job", 2);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1", "kill job e1 0"));
  Exit("job", 1, -9);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 2"));
}

TEST_F(TaskTableTest, Start_StaleEpoch_IsDroppedEvenAfterTheEnd) {
  SayStart("job", 2);
  Exit("job", 2);
  SayAck("job", 2, 1);
  host_.TakeCalls();
  SayStart("job", 1);
  SayStart("job", 2);
  EXPECT_THAT(host_.TakeCalls(), IsEmpty());
  SayStart("job", 3);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 3"));
}

TEST_F(TaskTableTest, Start_StaleEpoch_IsAnsweredWithAnExit) {
  table_->BeginSession();
  SayWelcome();
  SayStart("job", 2);
  Exit("job", 2);
  SayAck("job", 2, 1);
  Drain();
  SayStart("job", 1);
  EXPECT_THAT(Drain(), ElementsAre("job.1#1 exit EXIT_REASON_ABORTED"));
}

TEST_F(TaskTableTest, Start_DeletedJobsIdUsedAgain_Starts) {
  SayStart("job", 2);
  Exit("job", 2);
  SayAck("job", 2, 1);
  host_.TakeCalls();
  v1::CoordinatorMessage forget;
  forget.mutable_forget()->set_job_id("job");
  forget.mutable_forget()->set_epoch(1);
  Say(forget);
  SayStart("job", 1);
  EXPECT_THAT(host_.TakeCalls(), IsEmpty()) << "only epoch 1 was forgotten";
  SayAck("job", 1, 1);
  forget.mutable_forget()->set_epoch(2);
  Say(forget);
  SayStart("job", 1);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1"));
}

TEST_F(TaskTableTest, Start_OtherJobWhileBusy_IsRefusedButWaitsForOneThatEnds) {
  table_->BeginSession();
  SayWelcome();
  SayStart("a", 1);
  SayStart("b", 1);
  EXPECT_THAT(Drain(), ElementsAre("b.1#1 exit EXIT_REASON_ABORTED"));
  SayKill("a", 1, 0);
  host_.TakeCalls();
  SayStart("c", 1);
  EXPECT_THAT(host_.TakeCalls(), IsEmpty());
  Exit("a", 1, -9);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start c 1"));
}

TEST_F(TaskTableTest, Kill_PendingTask_ReportsExitAndNeverStarts) {
  table_->BeginSession();
  SayWelcome();
  SayStart("job", 1);
  SayStart("job", 2);
  SayKill("job", 2, 0);
  host_.TakeCalls();
  Exit("job", 1, -9);
  EXPECT_THAT(host_.TakeCalls(), IsEmpty());
  EXPECT_THAT(Drain(),
              ElementsAre("job.1#1 exit EXIT_REASON_KILLED", "job.2#1 exit EXIT_REASON_KILLED"));
}

TEST_F(TaskTableTest, ControlAndKill_OtherEpoch_AreDropped) {
  SayStart("job", 2);
  host_.TakeCalls();
  v1::CoordinatorMessage message;
  message.mutable_control()->set_job_id("job");
  message.mutable_control()->set_epoch(1);
  message.mutable_control()->set_bit(v1::CONTROL_BIT_PAUSE);
  Say(message);
  SayKill("job", 1, 0);
  EXPECT_THAT(host_.TakeCalls(), IsEmpty());
  message.mutable_control()->set_epoch(2);
  Say(message);
  SayKill("job", 2, 1.5);
  EXPECT_THAT(host_.TakeCalls(),
              ElementsAre("send job e2 control { bit: CONTROL_BIT_PAUSE }", "kill job e2 1.5s"));
}

TEST_F(TaskTableTest, Reports_BeforeWelcome_WaitThenComeInOrder) {
  SayStart("job", 1);
  Step("job", 1, 1);
  Step("job", 1, 2);
  table_->OnTrainerOutput({"job", 1}, "info", "a line");
  table_->BeginSession();
  EXPECT_THAT(Drain(), IsEmpty());
  SayWelcome();
  EXPECT_EQ(table_->heartbeat_interval(), absl::Seconds(2));
  EXPECT_THAT(Drain(), ElementsAre("job.1#1 step 1", "job.1#2 step 2", "job.1#3 logs 1"));
  EXPECT_THAT(Drain(), IsEmpty());
}

TEST_F(TaskTableTest, NewSession_UnackedReports_AreSentAgainExactly) {
  SayStart("job", 1, 4);
  for (int i = 1; i <= 4; ++i) {
    Step("job", 1, i);
  }
  table_->BeginSession();
  SayWelcome();
  EXPECT_EQ(Drain().size(), 4u);
  SayAck("job", 1, 1);
  Step("job", 1, 5);
  const v1::AgentMessage hello = table_->BeginSession();
  ASSERT_EQ(hello.hello().tasks_size(), 1);
  EXPECT_EQ(hello.hello().tasks(0).rank(), 4);
  EXPECT_TRUE(hello.hello().tasks(0).running());
  EXPECT_EQ(hello.hello().tasks(0).last_seq(), 5);
  EXPECT_EQ(hello.hello().tasks(0).first_unacked_seq(), 2);
  EXPECT_EQ(hello.hello().tasks(0).step(), 5);
  EXPECT_EQ(hello.hello().generation(), 1);
  v1::CoordinatorMessage welcome;  // it had committed up to 2 before the stream broke
  v1::ReportAck& ack = *welcome.mutable_welcome()->add_acks();
  ack.set_job_id("job");
  ack.set_epoch(1);
  ack.set_seq(2);
  Say(welcome);
  EXPECT_THAT(Drain(), ElementsAre("job.1#3 step 3", "job.1#4 step 4", "job.1#5 step 5"));
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1"));  // nothing was done to the trainer
}

TEST_F(TaskTableTest, EndedTask_StaysInHelloUntilAllIsAcked) {
  SayStart("job", 1);
  Step("job", 1, 1);
  Exit("job", 1, -9);
  EXPECT_FALSE(table_->BeginSession().hello().tasks(0).running());
  SayWelcome();
  EXPECT_THAT(Drain(), ElementsAre("job.1#1 step 1", "job.1#2 exit EXIT_REASON_KILLED"));
  SayAck("job", 1, 1);
  EXPECT_EQ(table_->BeginSession().hello().tasks_size(), 1);
  SayAck("job", 1, 2);
  EXPECT_EQ(table_->BeginSession().hello().tasks_size(), 0);
}

TEST_F(TaskTableTest, Dying_RunningTask_IsReportedBeforeItsExitAndAgainAfterAReconnect) {
  SayStart("job", 1);
  ExitFacts facts;
  facts.wait_status = -9;
  table_->OnTrainerDying({"job", 1}, facts, true, absl::Seconds(0.3));
  for (int session = 0; session < 2; ++session) {
    EXPECT_TRUE(table_->BeginSession().hello().tasks(0).running()) << "its device is not free";
    SayWelcome();
    const auto message = table_->NextMessage();
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->report().seq(), 1);
    EXPECT_EQ(message->report().dying().exit().reason(), v1::EXIT_REASON_KILLED);
    EXPECT_EQ(message->report().dying().seconds(), 0.3);
  }
  SayStart("other", 1);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1"));
  Exit("job", 1, -9);
  EXPECT_THAT(Drain(), Contains("job.1#2 exit EXIT_REASON_KILLED"));
}

TEST_F(TaskTableTest, Dying_FinishedOrOnRequest_IsNoReport) {
  SayStart("job", 1);
  v1::FromTrainer message;
  message.mutable_exit()->set_reason(v1::EXIT_REASON_FINISHED);
  table_->OnTrainerMessage({"job", 1}, message);
  ExitFacts facts;
  facts.wait_status = -9;
  table_->OnTrainerDying({"job", 1}, facts, true, absl::Seconds(5));
  Exit("job", 1);
  SayStart("next", 1);
  SayKill("next", 1, 0.0);
  table_->OnTrainerDying({"next", 1}, facts, true, absl::Seconds(5));
  table_->OnTrainerDying({"never", 1}, facts, true, absl::Seconds(5));
  table_->BeginSession();
  SayWelcome();
  EXPECT_THAT(Drain(), ElementsAre("job.1#1 exit EXIT_REASON_FINISHED"));
}

TEST_F(TaskTableTest, KvError_ReachesATrainerThatDoesNotWait) {
  SayStart("job", 1);
  host_.TakeCalls();
  v1::CoordinatorMessage message;
  message.mutable_kv_value()->set_job_id("job");
  message.mutable_kv_value()->set_epoch(1);
  message.mutable_kv_value()->mutable_value()->set_key("k");
  Say(message);
  EXPECT_THAT(host_.TakeCalls(), IsEmpty());
  message.mutable_kv_value()->mutable_value()->set_error("full");
  Say(message);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre(HasSubstr("error: \"full\"")));
}

TEST_F(TaskTableTest, KvWait_Reconnect_IsAskedAgainUntilAnswered) {
  SayStart("job", 1);
  table_->BeginSession();
  SayWelcome();
  Wait("job", 1, "k");
  EXPECT_THAT(Drain(), ElementsAre("wait k"));
  EXPECT_THAT(Drain(), IsEmpty());
  table_->BeginSession();
  SayWelcome();
  EXPECT_THAT(Drain(), ElementsAre("wait k"));
  v1::CoordinatorMessage message;
  message.mutable_kv_value()->set_job_id("job");
  message.mutable_kv_value()->set_epoch(1);
  message.mutable_kv_value()->mutable_value()->set_key("k");
  host_.TakeCalls();
  Say(message);
  Say(message);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("send job e1 kv_value { key: \"k\" }"));
  table_->BeginSession();
  SayWelcome();
  EXPECT_THAT(Drain(), IsEmpty());
}

TEST_F(TaskTableTest, OnMessage_LowerGeneration_IsRefusedWithoutEffect) {
  table_->BeginSession();
  v1::CoordinatorMessage message;
  message.mutable_welcome();
  Say(message, 5);
  v1::CoordinatorMessage stale;
  stale.set_generation(4);
  stale.mutable_start()->mutable_task()->set_job_id("job");
  stale.mutable_start()->mutable_task()->set_epoch(1);
  EXPECT_EQ(table_->OnMessage(stale).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(host_.calls, IsEmpty());
  EXPECT_EQ(table_->BeginSession().hello().generation(), 5);
}

TEST_F(TaskTableTest, Forget_RunningTask_KillsItAndSilencesIt) {
  SayStart("job", 1);
  Step("job", 1, 1);
  SayForget("job", 1);
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1", "kill job e1 0"));
  table_->BeginSession();
  SayWelcome();
  Step("job", 1, 2);
  Exit("job", 1, -9);
  EXPECT_THAT(Drain(), IsEmpty());
  EXPECT_EQ(table_->BeginSession().hello().tasks_size(), 0);
}

TEST_F(TaskTableTest, Forget_EndedTask_DropsItsReports) {
  SayStart("job", 1);
  Exit("job", 1);
  SayForget("job", 1);
  EXPECT_EQ(table_->BeginSession().hello().tasks_size(), 0);
  EXPECT_EQ(table_->snapshot().buffer_bytes, 0);
}

TEST_F(TaskTableTest, Tick_RunningTask_HeartbeatCarriesProgressOnce) {
  SayStart("job", 1);
  v1::FromTrainer progress;
  progress.mutable_progress()->set_step(7);
  table_->OnTrainerMessage({"job", 1}, progress);
  table_->BeginSession();
  table_->Tick({}, "sick");
  table_->Tick({}, "sick");
  EXPECT_THAT(Drain(), ElementsAre("heartbeat job 7"));
  EXPECT_EQ(table_->BeginSession().hello().unhealthy_reason(), "sick");
}

TEST_F(TaskTableTest, DiskRequests_AreHandedOnAndAnswered) {
  table_->BeginSession();
  SayWelcome();
  v1::CoordinatorMessage inspect;
  inspect.mutable_inspect()->set_request_id(3);
  Say(inspect);
  v1::CoordinatorMessage remove;
  remove.mutable_delete_checkpoint()->set_job_id("job");
  Say(remove);
  EXPECT_EQ(disk_.inspected.size(), 1u);
  EXPECT_EQ(disk_.deleted.size(), 1u);
  v1::CoordinatorMessage list;
  list.mutable_list_checkpoints()->set_request_id(4);
  Say(list);
  EXPECT_EQ(disk_.listed.size(), 1u);
  v1::AgentMessage answer;
  answer.mutable_inspect_result()->set_request_id(3);
  table_->Answer(answer);
  EXPECT_THAT(Drain(), ElementsAre("inspect_result { request_id: 3 }"));
}

TEST_F(TaskTableTest, StopAll_RunningTask_StopBitThenTermWithTheSpecsGrace) {
  v1::CoordinatorMessage message;
  v1::Task& task = *message.mutable_start()->mutable_task();
  task.set_job_id("job");
  task.set_epoch(1);
  task.mutable_spec()->mutable_checkpoint()->set_grace_seconds(7);
  Say(message);
  host_.TakeCalls();
  EXPECT_EQ(table_->StopAll(), absl::Seconds(7));
  EXPECT_THAT(host_.TakeCalls(),
              ElementsAre("send job e1 control { bit: CONTROL_BIT_STOP }", "kill job e1 7s"));
  EXPECT_FALSE(table_->AwaitNoTask(absl::ZeroDuration()));
  v1::FromTrainer exit;
  exit.mutable_exit()->set_reason(v1::EXIT_REASON_STOPPED);
  table_->OnTrainerMessage({"job", 1}, exit);
  Exit("job", 1);
  EXPECT_TRUE(table_->AwaitNoTask(absl::ZeroDuration()));
  EXPECT_FALSE(table_->AwaitDelivered(absl::ZeroDuration()));
  table_->BeginSession();
  SayWelcome();
  table_->SayGoodbye("bye");
  EXPECT_THAT(Drain(), ElementsAre("job.1#1 exit EXIT_REASON_STOPPED", HasSubstr("bye")));
  EXPECT_TRUE(table_->goodbye_sent());
  SayAck("job", 1, 1);
  EXPECT_TRUE(table_->AwaitDelivered(absl::ZeroDuration()));
  SayStart("late", 1);
  EXPECT_THAT(Drain(), ElementsAre("late.1#1 exit EXIT_REASON_ABORTED"));
}

// What the exit of its task makes the coordinator do must not come back here.
TEST_F(TaskTableTest, StopAll_IsToldBeforeTheExit_AndAgainInTheNextHello) {
  EXPECT_FALSE(table_->BeginSession().hello().stopping());
  SayWelcome();
  SayStart("job", 1);
  table_->Tick({}, "");
  EXPECT_FALSE(table_->NextMessage()->heartbeat().stopping());
  Exit("job", 1);
  table_->StopAll();
  const auto first = table_->NextMessage();
  ASSERT_TRUE(first->has_heartbeat()) << first->ShortDebugString();
  EXPECT_TRUE(first->heartbeat().stopping());
  EXPECT_TRUE(table_->NextMessage()->report().has_exit());
  EXPECT_TRUE(table_->BeginSession().hello().stopping());
}

TEST_F(TaskTableTest, Snapshot_JobSeries_EndWithTheTask) {
  SayStart("job", 1);
  Step("job", 1, 3);
  TaskSnapshot snapshot = table_->snapshot();
  EXPECT_TRUE(snapshot.running);
  EXPECT_EQ(snapshot.job_id, "job");
  EXPECT_EQ(snapshot.step, 3);
  EXPECT_EQ(snapshot.tasks_started, 1);
  EXPECT_GT(snapshot.buffer_bytes, 0);
  Exit("job", 1, -9);
  snapshot = table_->snapshot();
  EXPECT_FALSE(snapshot.running);
  EXPECT_EQ(snapshot.job_id, "");
  EXPECT_EQ(snapshot.exits.at(v1::EXIT_REASON_KILLED), 1);
}

v1::CoordinatorMessage AskForText(int64_t id) {
  v1::CoordinatorMessage message;
  message.mutable_write()->set_request_id(id);
  return message;
}

TEST_F(TaskTableTest, Text_BeginsWhereNothingRuns_OneAtATime) {
  table_->BeginSession();
  SayWelcome();
  Say(AskForText(7));
  ASSERT_EQ(texts_.written.size(), 1U);
  Say(AskForText(8));
  EXPECT_EQ(texts_.written.size(), 1U);
  const std::optional<v1::AgentMessage> refused = table_->NextMessage();
  ASSERT_TRUE(refused.has_value() && refused->has_written());
  EXPECT_EQ(refused->written().request_id(), 8);
  EXPECT_EQ(refused->written().code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  // What it writes goes out as an answer.
  v1::AgentMessage piece;
  piece.mutable_written()->set_text("once");
  EXPECT_TRUE(table_->OnText(piece));
  EXPECT_EQ(table_->NextMessage()->written().text(), "once");
  v1::CoordinatorMessage stop;
  stop.mutable_stop_writing()->set_request_id(8);
  Say(stop);
  EXPECT_THAT(texts_.stopped, IsEmpty()) << "another text";
  stop.mutable_stop_writing()->set_request_id(7);
  Say(stop);
  EXPECT_THAT(texts_.stopped, ElementsAre(""));
  table_->OnTextOver();
  Say(AskForText(9));
  EXPECT_EQ(texts_.written.size(), 2U);
}

TEST_F(TaskTableTest, Start_EndsTheText_AndWaitsForIt) {
  table_->BeginSession();
  SayWelcome();
  Say(AskForText(7));
  SayStart("job", 1);
  EXPECT_THAT(host_.TakeCalls(), IsEmpty()) << "the device is not free";
  ASSERT_EQ(texts_.stopped.size(), 1U);
  EXPECT_THAT(texts_.stopped[0], HasSubstr("a task of job was placed"));
  table_->OnTextOver();
  EXPECT_THAT(host_.TakeCalls(), ElementsAre("start job 1"));
  Say(AskForText(8));
  EXPECT_EQ(texts_.written.size(), 1U);
  EXPECT_THAT(table_->NextMessage()->written().error(), HasSubstr("runs job"));
}

TEST_F(TaskTableTest, TextOfABrokenStreamOrAStoppingWorker_Ends) {
  table_->BeginSession();
  SayWelcome();
  Say(AskForText(7));
  table_->BeginSession();
  EXPECT_THAT(texts_.stopped, ElementsAre(""));
  table_->StopAll();
  EXPECT_THAT(texts_.stopped, ElementsAre("", "the worker is stopping"));
  EXPECT_FALSE(table_->AwaitNoTask(absl::ZeroDuration()));
  table_->OnTextOver();
  EXPECT_TRUE(table_->AwaitNoTask(absl::ZeroDuration()));
}

}  // namespace
}  // namespace hearth::worker
