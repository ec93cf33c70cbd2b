// Fencing, exactly-once reports, restarts of coordinator and workers.
#include "coordinator/core/core.h"
#include "gmock/gmock.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;
using M = v1::CoordinatorMessage;

TEST(Reports, Duplicate_IsAcknowledgedAndNotAppliedTwice) {
  Harness h;
  h.Running(1);
  v1::TaskReport report = h.Next("job", 0);
  report.mutable_step()->set_step(2);
  EXPECT_EQ(h.Report("a", report).history.size(), 1u);
  const Effects again = h.Report("a", report);
  EXPECT_TRUE(again.history.empty());
  EXPECT_EQ(again.messages.at(0).message.ack().seq(), report.seq());
}

TEST(Reports, Duplicate_IsKnownAfterARestart) {
  Harness h;
  h.Running(1);
  v1::TaskReport report = h.Next("job", 0);
  report.mutable_step()->set_step(2);
  h.Report("a", report);
  h.Restart();
  h.Connect("a", "i1", {h.Status("job", 0, true, 2, 2)});
  EXPECT_EQ(h.FindSent(M::kWelcome, "a")->welcome().acks(0).seq(), 2);
  EXPECT_TRUE(h.Report("a", report).history.empty());
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h.Job("job").epoch(), 1);
}

TEST(Reports, Gap_ClosesTheStreamAndAppliesNothing) {
  Harness h;
  h.Running(1);
  v1::TaskReport report = h.Next("job", 0);
  report.set_seq(report.seq() + 1);
  report.mutable_step()->set_step(3);
  const Effects effects = h.Report("a", report);
  EXPECT_EQ(effects.closes.size(), 1u);
  EXPECT_TRUE(effects.history.empty());
}

TEST(Reports, BufferOverflowThatHelloTells_IsAcceptedAndNoted) {
  Harness h;
  h.Running(1);
  h.Disconnect("a");
  h.Connect("a", "i1", {h.Status("job", 0, true, 9, 5)});
  EXPECT_EQ(h.core->FindJob("job")->ranks(0).applied_seq(), 4);
  EXPECT_THAT(h.events.back().message(), HasSubstr("3 reports were lost"));
}

TEST(Reports, StepTwiceInAnEpoch_IsInTheHistoryOnce) {
  Harness h;
  h.Running(1);
  h.Step("job", 2);
  EXPECT_TRUE(h.Step("job", 2).history.empty());
  EXPECT_EQ(h.Job("job").step(), 2);
}

TEST(Reports, NewEpochFromAnEarlierStep_RewindsTheHistoryOnce) {
  Harness h;
  h.Running(1);
  h.Checkpoint("job", 1);
  h.Step("job", 2);
  h.Step("job", 3);
  h.Exit("job", 0, v1::EXIT_REASON_INTERNAL);
  h.Tick();
  v1::TaskReport info = h.Next("job", 0);
  info.mutable_run_info()->set_start_step(1);
  const Effects effects = h.Report("job", 0, info);
  ASSERT_EQ(effects.history.size(), 1u);
  EXPECT_EQ(effects.history[0].record.rewind().to_step(), 1);
  EXPECT_EQ(effects.history[0].record.rewind().epoch(), 2);
  const Effects step = h.Step("job", 2);
  ASSERT_EQ(step.history.size(), 1u);
  EXPECT_EQ(step.history[0].record.step().epoch(), 2);
  EXPECT_EQ(step.history[0].record.cursor(), 5);
}

TEST(Reports, ResumeWhereTheHistoryEnds_DoesNotRewind) {
  Harness h;
  h.Running(1);
  h.Checkpoint("job", 1);
  h.Exit("job", 0, v1::EXIT_REASON_INTERNAL);
  h.Tick();
  EXPECT_EQ(h.Step("job", 2).history.size(), 1u);
}

TEST(Checkpoints, StaleEpoch_IsRefused) {
  Harness h;
  h.Running(2);
  v1::TaskReport old = h.Next("job", 0);
  old.mutable_checkpoint()->set_step(7);
  h.Exit("job", 1, v1::EXIT_REASON_INTERNAL);
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  h.Tick();
  EXPECT_EQ(h.Job("job").epoch(), 2);
  const Effects effects = h.Report("a", old);
  EXPECT_FALSE(h.Job("job").has_checkpoint());
  EXPECT_EQ(effects.messages.at(0).message.ack().seq(), old.seq()) << "the agent drops it";
}

TEST(Checkpoints, NewestRecordedWinsAndKeepLastHoldsOverEpochs) {
  Harness h;
  h.Running(1);
  for (int64_t step = 1; step <= 5; ++step) {
    h.Step("job", step);
    h.Checkpoint("job", step);
  }
  EXPECT_EQ(h.Job("job").checkpoint().step(), 5);
  EXPECT_EQ(h.core->FindJob("job")->checkpoints_size(), 3);
  EXPECT_EQ(h.Sent(M::kDeleteCheckpoint), 2);
  v1::DeleteCheckpointRequest newest;
  newest.set_job_id("job");
  newest.set_epoch(1);
  newest.set_step(5);
  EXPECT_EQ(h.Do(newest).reply->status.code(), absl::StatusCode::kFailedPrecondition);
  newest.set_step(4);
  EXPECT_TRUE(h.Do(newest).reply->status.ok());
  EXPECT_EQ(h.core->FindJob("job")->checkpoints_size(), 2);
}

TEST(KeyValue, WaitBeforeAndAfterThePut_AreBothAnsweredAlsoAfterARestart) {
  Harness h;
  h.Connect("a");
  h.Connect("b");
  h.Create(2);
  h.Tick();
  AgentKvWait wait;
  wait.connection_id = h.connections["b"];
  wait.wait.set_job_id("job");
  wait.wait.set_epoch(1);
  wait.wait.set_rank(1);
  wait.wait.set_key("id");
  EXPECT_TRUE(h.Do(wait).messages.empty());
  v1::TaskReport put = h.Next("job", 0);
  put.mutable_kv_put()->set_key("id");
  put.mutable_kv_put()->set_value("secret");
  h.Report("job", 0, put);
  EXPECT_EQ(h.FindSent(M::kKvValue, "b")->kv_value().value().value(), "secret");
  h.Restart();
  h.Connect("a", "i1", {h.Status("job", 0, true, 1)});
  h.Connect("b", "i1", {h.Status("job", 1, true, 0)});
  wait.connection_id = h.connections["b"];
  EXPECT_EQ(h.Do(wait).messages.at(0).message.kv_value().value().value(), "secret");
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
}

TEST(KeyValue, CheckpointRecorded_ForgetsWhatItsPartsSaidAndNoMore) {
  Harness h;
  h.Running(2);
  for (const char* key : {"nccl/0", "checkpoint/1/100/folder", "checkpoint/1/100/1",
                          "checkpoint/1/90/folder", "checkpoint/1/200/folder"}) {
    h.Put("job", 0, key, "x");
  }
  h.Step("job", 100);
  h.Checkpoint("job", 100);
  std::vector<std::string> left;
  for (const v1::KvRecord& row : h.kv["job"]) {
    left.push_back(row.key());
  }
  EXPECT_THAT(left, ::testing::ElementsAre("nccl/0", "checkpoint/1/200/folder"));
}

TEST(KeyValue, FullSpace_RefusesThePutToThePutterAndToWhoWaitsForIt) {
  Harness h;
  h.Running(2);
  const std::string big(1 << 20, 'x');
  for (int i = 0; i < 200; ++i) {
    h.Put("job", 0, "same", big);  // overwritten: counts once
  }
  for (int i = 0; i < 62; ++i) {
    h.Put("job", 0, absl::StrCat("k", i), big);
  }
  EXPECT_EQ(h.kv["job"].size(), 262u);
  AgentKvWait wait;
  wait.connection_id = h.connections["b"];
  wait.wait.set_job_id("job");
  wait.wait.set_epoch(1);
  wait.wait.set_rank(1);
  wait.wait.set_key("last");
  h.Do(wait);
  h.sent.clear();
  EXPECT_TRUE(h.Put("job", 0, "last", big).kv_puts.empty());
  for (const char* worker : {"a", "b"}) {
    const v1::CoordinatorMessage* answer = h.FindSent(M::kKvValue, worker);
    ASSERT_NE(answer, nullptr) << worker;
    EXPECT_EQ(answer->kv_value().value().key(), "last");
    EXPECT_THAT(answer->kv_value().value().error(), HasSubstr("over the limits"));
  }
  EXPECT_THAT(h.Do(wait).messages.at(0).message.kv_value().value().error(), HasSubstr("limits"))
      << "also to whoever asks later";
  h.Put("job", 0, "same", "small");
  EXPECT_FALSE(h.Put("job", 0, "last", big).kv_puts.empty()) << "there is room again";
  EXPECT_EQ(h.Do(wait).messages.at(0).message.kv_value().value().error(), "");
}

TEST(Dying, TheOthersAreKilledAtOnceAndTheWorkerIsFreeWithTheExit) {
  Harness h;
  h.Running(3);
  h.Settle({"a", "b", "c"});
  h.Checkpoint("job", 1);
  h.sent.clear();
  const absl::Time fault = h.now.wall - absl::Seconds(0.5);
  h.Dying("job", 1, v1::EXIT_REASON_KILLED, "SIGKILL", 0.5);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(h.Job("job").reason_code(), "trainer_killed");
  EXPECT_EQ(h.Job("job").recovery().rank(), 1);
  EXPECT_EQ(h.Sent(M::kKill, "a"), 1);
  EXPECT_EQ(h.Sent(M::kKill, "c"), 1);
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  h.Exit("job", 2, v1::EXIT_REASON_COMM, "lost rank 1");
  h.Pass(absl::Seconds(2), {"a", "b", "c"});
  EXPECT_EQ(h.Job("job").epoch(), 1) << "its device is not free";
  EXPECT_EQ(h.WorkerState("b"), v1::WORKER_STATE_BUSY);
  h.Exit("job", 1, v1::EXIT_REASON_KILLED, "the trainer was ended by signal 9 (SIGKILL)");
  EXPECT_EQ(h.Job("job").reason_code(), "trainer_killed");
  EXPECT_THAT(h.Job("job").reason(), HasSubstr("rank 1 on b: the trainer was ended by signal 9"));
  EXPECT_EQ(h.Job("job").restarts(), 1) << "a failure of its own, not a kill of ours";
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.Job("job").workers_size(), 3) << "all of them at once";
  h.Step("job", 2);
  EXPECT_EQ(h.Job("job").recovery().rank(), 1);
  EXPECT_EQ(h.Job("job").recovery().fault_time().nanos(),
            absl::ToInt64Nanoseconds((fault - absl::UnixEpoch()) % absl::Seconds(1)));
}

TEST(Dying, CauseOfTheExit_IsWhatIsRecordedInTheEnd) {
  Harness h;
  h.Running(2);
  h.Dying("job", 1, v1::EXIT_REASON_UNSPECIFIED, "ending");
  EXPECT_EQ(h.Job("job").reason_code(), "trainer_failed");
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  h.Exit("job", 1, v1::EXIT_REASON_NUMERICAL, "nan");
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(h.Job("job").reason_code(), "numerical");
}

// Its peer's report of a broken connection came first, and with it our kill.
TEST(Dying, KilledBeforeOurKill_IsToBlameForPeersThatLostIt) {
  Harness h;
  h.Running(2);
  h.Exit("job", 0, v1::EXIT_REASON_COMM, "lost rank 1");
  v1::TaskReport report = h.Next("job", 1);
  report.mutable_exit()->mutable_exit()->set_reason(v1::EXIT_REASON_KILLED);
  report.mutable_exit()->mutable_exit()->set_message("SIGKILL");
  report.mutable_exit()->set_clean(true);
  report.mutable_exit()->set_before_kill(true);
  h.Report("job", 1, report);
  EXPECT_EQ(h.Job("job").reason_code(), "trainer_killed");
  EXPECT_EQ(h.Job("job").recovery().rank(), 1);
}

TEST(Dying, SaidTwiceOrStaleOrLate_ChangesNothing) {
  Harness h;
  h.Running(2);
  v1::TaskReport notice = h.Next("job", 1);
  notice.mutable_dying()->mutable_exit()->set_reason(v1::EXIT_REASON_KILLED);
  h.Report("b", notice);
  const size_t events = h.events.size();
  h.Disconnect("b");
  h.Connect("b", "i1", {h.Status("job", 1, true, 1, 1)});
  h.sent.clear();
  h.Report("b", notice);
  EXPECT_EQ(h.events.size(), events);
  EXPECT_EQ(h.Sent(M::kKill), 0) << "an acknowledgement is all";
  h.Restart();
  h.Connect("a", "i1", {h.Status("job", 0, true, 1)});
  h.Connect("b", "i1", {h.Status("job", 1, true, 1)});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(h.Sent(M::kKill), 2);
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  h.Exit("job", 1, v1::EXIT_REASON_KILLED);
  h.Tick();
  EXPECT_EQ(h.Job("job").epoch(), 2);
  h.Report("b", notice);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
}

TEST(Dying, RankZeroHasFinished_TheJobSucceeds) {
  Harness h;
  h.Running(2);
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  h.Dying("job", 1, v1::EXIT_REASON_KILLED, "SIGKILL");
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  h.Exit("job", 1, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
}

TEST(Dying, WhilePausing_TheOthersAreKilledAndThePauseEnds) {
  Harness h;
  h.Running(2);
  EXPECT_TRUE(h.Pause("job").status.ok());
  h.sent.clear();
  h.Dying("job", 1, v1::EXIT_REASON_KILLED, "SIGKILL");
  EXPECT_EQ(h.Sent(M::kKill, "a"), 1);
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_PAUSING);
  h.Exit("job", 1, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_PAUSED);
}

TEST(Recovery, LostWorker_TimeFromItsLastSignOfLifeToTheNextStep) {
  Harness h;
  h.Running(3);
  h.Settle({"a", "b", "c"});
  h.Checkpoint("job", 5);
  h.Pass(absl::Seconds(6), {"a", "c"}, false);  // b is silent
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(h.Job("job").recovery().rank(), 1);
  EXPECT_EQ(h.Job("job").recovery().seconds(), 0.0);
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  h.Exit("job", 2, v1::EXIT_REASON_KILLED);
  h.Restart();  // what is known of the fault is on the disk
  h.Connect("a");
  h.Connect("c");
  h.Connect("b", "i2");
  h.Pass(absl::Seconds(4), {"a", "b", "c"});
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  h.Step("job", 6);
  const v1::Recovery& recovery = h.Job("job").recovery();
  EXPECT_NEAR(recovery.seconds(), 10.0, 0.6);
  EXPECT_EQ(recovery.worker_id(), "b");
  EXPECT_EQ(recovery.reason_code(), "worker_lost");
  EXPECT_EQ(recovery.step(), 5);
  EXPECT_EQ(recovery.workers(), 3);
  EXPECT_EQ(h.events.back().type(), "recovery");
  EXPECT_THAT(h.events.back().message(), HasSubstr("lost rank 1 on b (worker b is silent"));
  EXPECT_THAT(h.events.back().message(), HasSubstr("resumed from step 5 with 3 workers"));
  h.Step("job", 7);
  EXPECT_EQ(h.events.back().type(), "recovery") << "once";
}

TEST(Recovery, PeersSpeakFirst_TheStoppedTrainerIsBlamedFromItsLastSignOfLife) {
  Harness h;
  h.Running(2);
  h.Settle({"a", "b"});
  h.Exit("job", 0, v1::EXIT_REASON_COMM, "peers are gone");
  EXPECT_EQ(h.Job("job").recovery().reason_code(), "peers_lost");
  h.Pass(absl::Seconds(3), {"a", "b"}, false);
  v1::TaskReport report = h.Next("job", 1);
  report.mutable_exit()->mutable_exit()->set_reason(v1::EXIT_REASON_HUNG);
  report.mutable_exit()->mutable_exit()->set_message(
      "stopped: no heartbeat for 3s, process state T");
  report.mutable_exit()->set_clean(true);
  report.mutable_exit()->set_silent_seconds(4);
  h.Report("job", 1, report);
  EXPECT_EQ(h.Job("job").reason_code(), "trainer_hung");
  h.Tick();
  h.Step("job", 1);
  EXPECT_NEAR(h.Job("job").recovery().seconds(), 4.0, 0.1);
  EXPECT_EQ(h.Job("job").recovery().rank(), 1);
  EXPECT_THAT(h.events.back().message(), HasSubstr("process state T"));
}

TEST(Recovery, CancelledMeanwhile_IsForgotten) {
  Harness h;
  h.Running(2);
  h.Exit("job", 0, v1::EXIT_REASON_INTERNAL, "boom");
  h.Cancel("job", true);
  h.Exit("job", 1, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_CANCELLED);
  EXPECT_FALSE(h.Job("job").has_recovery());
}

TEST(Fencing, LoneCutOffWorker_IsReplacedAndKilledWhenItReturns) {
  Harness h;
  h.Running(1);
  h.Connect("b");
  h.Settle({"a", "b"});
  h.Pass(absl::Seconds(7), {"b"});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.Job("job").epoch(), 2);
  EXPECT_EQ(h.Job("job").workers(0), "b");
  EXPECT_EQ(h.Job("job").restarts(), 0) << "lost workers never count";
  h.sent.clear();
  v1::TaskStatus old = h.Status("job", 0, true, 5, 2);
  old.set_epoch(1);
  EXPECT_TRUE(h.TryConnect("a", "i1", {old}).ok());
  EXPECT_EQ(h.FindSent(M::kKill, "a")->kill().epoch(), 1);
  h.Create(1, "next");
  h.Tick();
  EXPECT_EQ(h.State("next"), v1::JOB_STATE_QUEUED) << "the old process is still there";
  v1::TaskReport exit;
  exit.set_job_id("job");
  exit.set_epoch(1);
  exit.set_seq(6);
  exit.mutable_exit()->set_clean(true);
  h.Report("a", exit);
  h.Tick();
  EXPECT_EQ(h.State("next"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.Job("job").epoch(), 2);
}

TEST(Fencing, NewIncarnation_MeansThatTheOldTasksAreGone) {
  Harness h;
  h.Running(1);
  h.Disconnect("a");
  h.Connect("a", "i2");
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.Job("job").epoch(), 2);
  EXPECT_EQ(h.Job("job").restarts(), 0);
  h.Disconnect("a");
  EXPECT_EQ(h.TryConnect("a", "i1").code(), absl::StatusCode::kAborted) << "a stale daemon";
}

TEST(Fencing, SecondLiveWorkerOfANameOrGpu_IsRefused) {
  Harness h;
  h.Connect("a");
  EXPECT_EQ(h.TryConnect("a", "i2").code(), absl::StatusCode::kAlreadyExists);
  AgentConnected gpu;
  gpu.connection_id = 100;
  gpu.hello.set_worker_id("g0");
  gpu.hello.set_incarnation("x");
  gpu.hello.mutable_device()->set_kind("cuda");
  gpu.hello.mutable_device()->set_uuid("GPU-1");
  EXPECT_TRUE(h.Do(gpu).reply->status.ok());
  gpu.connection_id = 101;
  gpu.hello.set_worker_id("g1");
  EXPECT_EQ(h.Do(gpu).reply->status.code(), absl::StatusCode::kAlreadyExists);
}

TEST(Energy, Gang_StepsSumAllRanks) {
  Harness h;
  const std::string job = h.Running(2);
  h.BeatEnergy("b", 1000);
  const auto step = [&](int64_t number, double rank0) {
    v1::TaskReport report = h.Next(job, 0);
    report.mutable_step()->set_step(number);
    report.mutable_step()->set_energy_joules(rank0);
    h.Report(job, 0, report);
    return h.core->FindJob(job)->job().last_report().energy_joules();
  };
  EXPECT_EQ(step(2, 50), 50) << "the first look at b's counter";
  h.BeatEnergy("b", 1040);
  EXPECT_EQ(step(3, 50), 90);
  EXPECT_EQ(step(4, 50), 50) << "no heartbeat between";
  h.BeatEnergy("b", 3);
  EXPECT_EQ(step(5, 50), 50) << "its driver was loaded again";
  h.BeatEnergy("b", 10);
  EXPECT_EQ(step(6, 50), 57);
}

TEST(Fencing, LowerGeneration_IsToldToGoAway) {
  Harness h;
  AgentConnected connected;
  connected.connection_id = 1;
  connected.hello.set_worker_id("a");
  connected.hello.set_incarnation("x");
  connected.hello.mutable_device()->set_kind("cpu");
  connected.hello.set_generation(9);
  EXPECT_EQ(h.Do(connected).reply->status.code(), absl::StatusCode::kAborted);
}

TEST(Fencing, LateDisconnectOfAnOldStream_DoesNoHarm) {
  Harness h;
  h.Connect("a");
  const uint64_t old = h.connections["a"];
  h.Connect("a");
  h.Do(AgentDisconnected{old});
  EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_IDLE);
}

TEST(Reattach, StartTaskLostWithTheStream_IsSentAgain) {
  Harness h;
  h.Connect("a");
  h.Create(1);
  h.Tick();
  h.Restart();
  h.Connect("a");
  EXPECT_EQ(h.FindSent(M::kStart, "a")->start().task().epoch(), 1);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
}

TEST(Reattach, WhatFinishedMeanwhile_IsReportedAsItWas) {
  Harness h;
  h.Running(1);
  h.Restart();
  h.Connect("a", "i1", {h.Status("job", 0, false, 3, 2)});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  h.Step("job", 2);
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(h.Job("job").epoch(), 1);
}

TEST(Reattach, UnknownTask_IsForgottenOrKilled) {
  Harness h;
  v1::TaskStatus ended;
  ended.set_job_id("gone");
  ended.set_epoch(3);
  ended.set_last_seq(8);
  v1::TaskStatus running = ended;
  running.set_epoch(4);
  running.set_running(true);
  h.Connect("a", "i1", {ended, running});
  EXPECT_EQ(h.FindSent(M::kForget, "a")->forget().epoch(), 3);
  EXPECT_EQ(h.FindSent(M::kKill, "a")->kill().epoch(), 4);
  EXPECT_EQ(h.FindSent(M::kWelcome, "a")->welcome().acks(0).seq(), 8);
}

TEST(Reattach, StopUnderWay_IsAskedAgain) {
  Harness h;
  h.Running(1);
  h.Pause("job");
  h.Restart();
  h.Connect("a", "i1", {h.Status("job", 0, true, 1)});
  EXPECT_EQ(h.FindSent(M::kControl, "a")->control().bit(), v1::CONTROL_BIT_PAUSE);
}

TEST(Recovery, WaitsUntilEveryOldRankIsGone) {
  Harness h;
  h.Running(2);
  h.Disconnect("b");
  h.Connect("b", "i2");
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RECOVERING);
  h.Pass(absl::Seconds(3), {"a", "b"});
  EXPECT_EQ(h.Job("job").epoch(), 1) << "rank 0 has not been proven gone";
  h.Exit("job", 0, v1::EXIT_REASON_COMM);
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.Job("job").restarts(), 0);
}

TEST(Recovery, PeersThatBlameALostWorker_DoNotCount) {
  Harness h;
  h.Running(2);
  h.Exit("job", 0, v1::EXIT_REASON_COMM, "connection reset");
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RECOVERING);
  h.Disconnect("b");
  h.Connect("b", "i2");
  EXPECT_EQ(h.Job("job").restarts(), 0);
  EXPECT_EQ(h.Job("job").reason_code(), "worker_lost");
}

TEST(Recovery, TooFewWorkers_GoesToTheQueueWithAReason) {
  Harness h;
  h.Running(2);
  h.Do(AgentGoodbye{h.connections["b"], {}});
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  h.Pass(absl::Seconds(66), {"a"});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.Job("job").reason(), "needs 2 cpu workers, 1 exists");
}

TEST(Recovery, WorkerThatNeverConfirmsTheKill_IsGivenUp) {
  Harness h;
  h.Running(1);
  h.Cancel("job", true);
  h.Pass(absl::Seconds(62), {"a"});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_UNHEALTHY);
  EXPECT_GE(h.Sent(M::kKill), 5);
}

TEST(Clock, WallTimeJumpsADayEitherWay_ChangesNoState) {
  Harness h;
  h.Running(2);
  h.Checkpoint("job", 1);
  h.Create(9, "waits");
  h.Pass(absl::Seconds(5), {"a", "b"});
  const size_t events = h.events.size();
  h.sent.clear();
  for (const absl::Duration jump : {absl::Hours(24), -absl::Hours(48), absl::Hours(24)}) {
    h.now.wall += jump;
    h.Pass(absl::Seconds(5), {"a", "b"});
    EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING) << jump;
    EXPECT_EQ(h.State("waits"), v1::JOB_STATE_QUEUED) << jump;
    EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_BUSY) << jump;
  }
  EXPECT_EQ(h.events.size(), events);
  EXPECT_EQ(h.Sent(M::kKill) + h.Sent(M::kStart), 0);
  EXPECT_EQ(h.Job("job").epoch(), 1);
}

// The machine runs on while the coordinator is restarted, and its wall clock jumps meanwhile.
TEST(Clock, WallTimeJumpsWhileTheCoordinatorIsAway_DurationsAreRight) {
  for (const absl::Duration jump : {absl::Hours(24), -absl::Hours(24)}) {
    Harness h;
    h.now.boot_id = "boot";
    h.Running(2);
    h.Settle({"a", "b"});
    h.Checkpoint("job", 5);
    const double before = h.Job("job").running_seconds();
    h.Pass(absl::Seconds(2), {"a", "b"});
    h.now.wall += jump;
    h.now.monotonic += absl::Seconds(3);
    h.Restart();
    h.Connect("a");
    h.Connect("b");
    h.Step("job", 6);
    const double after = h.Job("job").running_seconds();
    EXPECT_GE(after - before, 5.0) << jump;
    EXPECT_LT(after - before, 60.0) << jump;

    h.Dying("job", 1, v1::EXIT_REASON_KILLED, "SIGKILL", 0.5);
    h.Exit("job", 0, v1::EXIT_REASON_COMM, "lost rank 1");
    h.Exit("job", 1, v1::EXIT_REASON_KILLED);
    h.now.wall -= jump;
    h.now.monotonic += absl::Seconds(4);
    h.Restart();
    h.Connect("a");
    h.Connect("b");
    h.Tick();
    ASSERT_EQ(h.State("job"), v1::JOB_STATE_STARTING) << jump;
    h.Step("job", 6);
    EXPECT_NEAR(h.Job("job").recovery().seconds(), 4.5, 0.5) << jump;
  }
}

TEST(Requests, Old_AreForgotten) {
  Harness h;
  CreateJob create;
  create.job_id = "x";
  create.request_id = "r";
  h.Do(create);
  h.now.wall += absl::Hours(25);  // a jump of the clock
  h.Tick();
  EXPECT_THAT(h.last.request_deletes, ::testing::IsEmpty());
  h.now.monotonic += absl::Hours(25);
  h.Tick();
  EXPECT_THAT(h.last.request_deletes, ::testing::ElementsAre("r"));
}

}  // namespace
}  // namespace hearth::coordinator
