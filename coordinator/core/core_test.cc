// Jobs as users drive them, gangs as they start and end.
#include "coordinator/core/core.h"

#include "common/reasons/reason_codes.h"
#include "coordinator/core/transitions.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;
using M = v1::CoordinatorMessage;

std::string ErrorReason(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  info.ParseFromString(std::string(*status.GetPayload("type.googleapis.com/google.rpc.ErrorInfo")));
  return info.reason();
}

TEST(Transitions, EveryState_HasARowAndEveryExitReasonAKnownCode) {
  for (int i = 1; v1::JobState_IsValid(i); ++i) {
    EXPECT_EQ(StateRowOf(static_cast<v1::JobState>(i)).state, i);
  }
  for (int i = 0; v1::ExitReason_IsValid(i); ++i) {
    EXPECT_EQ(ExitRowOf(static_cast<v1::ExitReason>(i)).reason, i);
    EXPECT_TRUE(reasons::IsReasonCode(ExitRowOf(static_cast<v1::ExitReason>(i)).code));
  }
  EXPECT_FALSE(IsLegalTransition(v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_RUNNING));
  EXPECT_FALSE(IsLegalTransition(v1::JOB_STATE_STARTING, v1::JOB_STATE_SUCCEEDED));
}

TEST(CreateJob, AnswerForgottenMeanwhile_CreatesNothingFromTheUncheckedSpec) {
  Harness h;
  CreateJob create;
  create.spec.set_name("job");
  create.job_id = "job";
  create.request_id = "r1";
  create.answered = true;
  EXPECT_EQ(h.Do(create).reply->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(h.core->FindJob("job"), nullptr);
}

TEST(CreateJob, SameRequestId_ReturnsTheFirstJobAlsoAfterARestart) {
  Harness h;
  CreateJob create;
  create.spec.set_name("Fine Web/112M");
  create.request_id = "r1";
  create.id_suffix = "k3x9qabc";
  EXPECT_EQ(h.Do(create).reply->job->job_id(), "fine-web-112m-k3x9q");
  create.id_suffix = "other123";
  EXPECT_EQ(h.Do(create).reply->job->job_id(), "fine-web-112m-k3x9q");
  h.Restart();
  EXPECT_EQ(h.Do(create).reply->job->job_id(), "fine-web-112m-k3x9q");
  EXPECT_EQ(h.core->Jobs().size(), 1u);
}

TEST(CreateJob, TakenId_IsRefusedOrExtended) {
  Harness h;
  h.Create(1, "x");
  CreateJob create;
  create.job_id = "x";
  EXPECT_EQ(ErrorReason(h.Do(create).reply->status), "JOB_EXISTS");
  create.job_id.clear();
  create.spec.set_name("n");
  create.id_suffix = "aaaaabbb";
  EXPECT_EQ(h.Do(create).reply->job->job_id(), "n-aaaaa");
  EXPECT_EQ(h.Do(create).reply->job->job_id(), "n-aaaaab");
}

TEST(CreateJob, ValidateOnly_ChangesNothing) {
  Harness h;
  CreateJob create;
  create.job_id = "x";
  create.validate_only = true;
  const Effects effects = h.Do(create);
  EXPECT_TRUE(effects.reply->status.ok());
  EXPECT_TRUE(effects.NothingDurable());
  EXPECT_EQ(h.core->FindJob("x"), nullptr);
}

TEST(Job, AllRanksFinished_Succeeds) {
  Harness h;
  h.Running(2);
  const v1::Task& task = h.FindSent(M::kStart, "b")->start().task();
  EXPECT_EQ(task.rank(), 1);
  EXPECT_EQ(task.world_size(), 2);
  EXPECT_EQ(task.epoch(), 1);
  EXPECT_EQ(task.checkpoint_dir(), "/ck/job/e1");
  EXPECT_EQ(task.threads(), 2);
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_IDLE);
  h.Exit("job", 1, v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(h.Job("job").has_end_time());
}

// Hosts and buses in another order than names and arrival.
TEST(Job, Ranks_AreOrderedByHostThenBusThenNameAtEveryStart) {
  Harness h;
  struct {
    const char* id;
    const char* host;
    const char* bus;
  } const rows[] = {{"a", "node2", "00000000:1B:00.0"},
                    {"b", "node1", "00000000:9A:00.0"},
                    {"c", "node1", "00000000:1B:00.0"},
                    {"e", "node1", ""},
                    {"d", "node1", ""}};
  for (const auto& row : rows) {
    AgentConnected connected;
    connected.connection_id = 100 + static_cast<uint64_t>(row.id[0]);
    v1::Hello& hello = connected.hello;
    hello.set_worker_id(row.id);
    hello.set_incarnation("i1");
    hello.set_host(row.host);
    hello.mutable_device()->set_kind("cpu");
    hello.mutable_device()->set_pci_bus_id(row.bus);
    hello.set_checkpoint_root("/ck");
    hello.set_root_uuid("root");
    ASSERT_TRUE(h.Do(connected).reply->status.ok());
    h.connections[row.id] = connected.connection_id;
  }
  h.Create(5);
  h.Tick();
  const std::vector<std::string> order = {"d", "e", "c", "b", "a"};
  for (int start = 1; start <= 2; ++start) {
    EXPECT_EQ(h.Job("job").epoch(), start);
    for (int rank = 0; rank < 5; ++rank) {
      EXPECT_EQ(h.Job("job").workers(rank), order[static_cast<size_t>(rank)]);
    }
    h.Exit("job", start, v1::EXIT_REASON_INTERNAL, "boom");
    for (int rank = 0; rank < 5; ++rank) {
      if (rank != start) {
        h.Exit("job", rank, v1::EXIT_REASON_KILLED);
      }
    }
    h.Tick();
  }
}

TEST(Job, NothingLeftToDo_PassesThroughRunning) {
  Harness h;
  h.Connect("a");
  h.Create(1);
  h.Tick();
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
}

TEST(Job, FatalExit_FailsWithTheTrainersMessageAndIsNotRetried) {
  Harness h;
  h.Running(2);
  h.Exit("job", 0, v1::EXIT_REASON_BAD_DATA, "shard 3: token 70000 >= vocab 50304");
  EXPECT_EQ(h.Sent(M::kKill, "b"), 1) << "the other rank is killed at once";
  h.Exit("job", 1, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(h.Job("job").reason_code(), "bad_data");
  EXPECT_THAT(h.Job("job").reason(), HasSubstr("token 70000"));
}

TEST(Job, MaxRestarts_CountsConsecutiveFailuresWithoutANewCheckpoint) {
  Harness h;
  h.Running(1);
  for (int i = 1; i <= 2; ++i) {
    h.Exit("job", 0, v1::EXIT_REASON_INTERNAL, "boom");
    EXPECT_EQ(h.Job("job").restarts(), i);
    h.Tick();
    EXPECT_EQ(h.Job("job").epoch(), i + 1);
  }
  h.Step("job", 1);
  h.Checkpoint("job", 1);
  EXPECT_EQ(h.Job("job").restarts(), 0);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_NE(h.State("job"), v1::JOB_STATE_FAILED);
    h.Exit("job", 0, v1::EXIT_REASON_INTERNAL, "boom");
    h.Tick();
  }
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(h.Job("job").reason_code(), "max_restarts");
  EXPECT_THAT(h.Job("job").reason(), HasSubstr("boom"));
}

TEST(Job, Pause_SendsTheBitAndEndsPausedThenResumesFromTheCheckpoint) {
  Harness h;
  h.Running(2);
  h.Pause("job");
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(h.FindSent(M::kControl, "b")->control().bit(), v1::CONTROL_BIT_PAUSE);
  h.Step("job", 2);
  h.Checkpoint("job", 2);
  h.Exit("job", 0, v1::EXIT_REASON_PAUSED);
  h.Exit("job", 1, v1::EXIT_REASON_PAUSED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(h.Sent(M::kKill), 0);
  h.sent.clear();
  h.Resume("job");
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.FindSent(M::kStart, "a")->start().task().resume_path(), "/ck/job/e1/step-2");
}

TEST(Job, StopBeforeTheFirstStep_KillsAtOnce) {
  Harness h;
  h.Connect("a");
  h.Create(1);
  h.Tick();
  h.Cancel("job");
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(h.Sent(M::kKill), 1);
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_CANCELLED);
}

TEST(Job, StopThatTakesTooLong_IsKilledAfterGrace) {
  Harness h;
  h.Running(1);
  h.Cancel("job");
  h.Pass(absl::Seconds(19), {"a"});
  EXPECT_EQ(h.Sent(M::kKill), 0);
  h.Pass(absl::Seconds(2), {"a"});
  EXPECT_EQ(h.Sent(M::kKill), 1);
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_CANCELLED);
}

TEST(Job, CancelNow_KillsWithoutWaiting) {
  Harness h;
  h.Running(1);
  h.Cancel("job");
  EXPECT_EQ(h.Sent(M::kKill), 0);
  h.Cancel("job", true);
  EXPECT_EQ(h.Sent(M::kKill), 1);
}

TEST(Job, FinishedWhileCancelling_Succeeds) {
  Harness h;
  h.Running(1);
  h.Cancel("job");
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
}

TEST(Job, TrainerDiesWhilePausing_EndsPausedAtTheLastCheckpoint) {
  Harness h;
  h.Running(2);
  h.Pause("job");
  h.Exit("job", 0, v1::EXIT_REASON_INTERNAL, "boom");
  EXPECT_EQ(h.Sent(M::kKill, "b"), 1);
  h.Exit("job", 1, v1::EXIT_REASON_KILLED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_PAUSED);
  EXPECT_THAT(h.Job("job").reason(), HasSubstr("boom"));
}

TEST(Job, ResumeWhilePausing_RunsAgainAfterThePause) {
  Harness h;
  h.Running(1);
  h.Pause("job");
  EXPECT_TRUE(h.Resume("job").status.ok());
  EXPECT_EQ(h.events.back().actor(), "user");
  h.Exit("job", 0, v1::EXIT_REASON_PAUSED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.events.back().actor(), "coordinator");
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.Job("job").epoch(), 2);
}

TEST(Job, Commands_AreRefusedInTheWrongState) {
  Harness h;
  h.Running(1);
  v1::DeleteJobRequest request;
  request.set_job_id("job");
  EXPECT_EQ(ErrorReason(h.Do(request).reply->status), "JOB_ALIVE");
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(ErrorReason(h.Cancel("job").status), "JOB_ENDED");
  EXPECT_EQ(ErrorReason(h.Pause("job").status), "NOT_PAUSABLE");
  EXPECT_EQ(ErrorReason(h.Resume("job").status), "NO_CHECKPOINT");
  EXPECT_EQ(ErrorReason(h.Cancel("nope").status), "JOB_NOT_FOUND");
  EXPECT_EQ(h.Do(request).job_deletes.size(), 1u);
  EXPECT_EQ(h.core->FindJob("job"), nullptr);
}

// A job of two steps on worker "a", which has done them and written a checkpoint.
void SucceedAfterTwoSteps(Harness& h) {
  h.Connect("a");
  CreateJob create;
  create.job_id = "job";
  create.paths_checked = true;
  create.spec.mutable_train()->set_steps(2);
  create.spec.mutable_resources()->set_workers(1);
  create.spec.mutable_resources()->set_device("cpu");
  ASSERT_TRUE(h.Do(create).reply->status.ok());
  h.Tick();
  h.Step("job", 1);
  h.Step("job", 2);
  h.Checkpoint("job", 2);
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
}

absl::Status ResumeWithSteps(Harness& h, int64_t steps) {
  ResumeJob resume;
  resume.job_id = "job";
  resume.spec = h.Job("job").spec();
  resume.spec->mutable_train()->set_steps(steps);
  return h.Do(resume).reply->status;
}

TEST(Job, ResumedWithMoreSteps_GoesOnAfterItHasSucceeded) {
  Harness h;
  SucceedAfterTwoSteps(h);
  h.sent.clear();
  EXPECT_TRUE(ResumeWithSteps(h, 4).ok());
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  EXPECT_FALSE(h.Job("job").has_end_time());
  EXPECT_EQ(h.events.back().from_state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(h.events.back().reason_code(), "user_resume");
  EXPECT_EQ(h.jobs.at("job").job().state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.jobs.at("job").job().spec().train().steps(), 4);
  h.Tick();
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.Job("job").epoch(), 2);
  ASSERT_NE(h.FindSent(M::kStart, "a"), nullptr);
  const v1::Task task = h.FindSent(M::kStart, "a")->start().task();
  EXPECT_EQ(task.resume_step(), 2);
  EXPECT_EQ(task.spec().train().steps(), 4);
  h.Step("job", 3);
  h.Step("job", 4);
  h.Checkpoint("job", 4);
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(h.Job("job").has_end_time());
}

TEST(Job, ResumedWithoutMoreSteps_StaysSucceededAndSaysWhatToSet) {
  Harness h;
  SucceedAfterTwoSteps(h);
  for (const int64_t steps : {1, 2}) {
    const absl::Status refused = ResumeWithSteps(h, steps);
    EXPECT_EQ(ErrorReason(refused), "NO_STEPS_LEFT");
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("has done 2 steps; to extend it, set train.steps to more: jobctl resume "
                          "job --set train.steps=4"));
  }
  EXPECT_EQ(ErrorReason(h.Resume("job").status), "NO_STEPS_LEFT");
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(h.Job("job").spec().train().steps(), 2);
}

// Else it would begin at step 1 again under the name of a job that is done.
TEST(Job, ResumedWithoutACheckpoint_StaysSucceeded) {
  Harness h;
  SucceedAfterTwoSteps(h);
  v1::DeleteCheckpointRequest request;
  request.set_job_id("job");
  request.set_epoch(1);
  request.set_step(2);
  ASSERT_TRUE(h.Do(request).reply->status.ok());
  const absl::Status refused = ResumeWithSteps(h, 4);
  EXPECT_EQ(ErrorReason(refused), "NO_CHECKPOINT");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("jobctl rerun job --set train.steps=4"));
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_SUCCEEDED);
}

TEST(Job, Delete_TellsTheAgents_SoThatTheIdCanBeUsedAgain) {
  Harness h;
  h.Running(1);
  h.Exit("job", 0, v1::EXIT_REASON_FINISHED);
  v1::DeleteJobRequest request;
  request.set_job_id("job");
  h.Do(request);
  const v1::CoordinatorMessage* forget = h.FindSent(M::kForget, "a");
  ASSERT_NE(forget, nullptr);
  EXPECT_EQ(forget->forget().job_id(), "job");
  EXPECT_EQ(forget->forget().epoch(), 1);
}

TEST(Job, Etag_DetectsALostRace) {
  Harness h;
  h.Create(1);
  v1::UpdateJobRequest update;
  update.set_job_id("job");
  update.set_etag(h.Job("job").etag());
  update.set_priority(3);
  EXPECT_TRUE(h.Do(update).reply->status.ok());
  EXPECT_EQ(h.Do(update).reply->status.code(), absl::StatusCode::kAborted);
}

TEST(Job, UpdatedPriority_IsInTheRangeOfItsRow) {
  Harness h;
  h.Create(1);
  v1::UpdateJobRequest update;
  update.set_job_id("job");
  for (const int beyond : {-1001, 1001}) {
    update.set_priority(beyond);
    const absl::Status status = h.Do(update).reply->status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("it must be within -1000..1000"));
    EXPECT_EQ(h.Job("job").spec().resources().priority(), 0);
  }
  update.set_priority(1000);
  EXPECT_TRUE(h.Do(update).reply->status.ok());
  EXPECT_EQ(h.Job("job").spec().resources().priority(), 1000);
}

TEST(Job, TimeLimit_StopsAndFails) {
  Harness h;
  h.Connect("a");
  CreateJob create;
  create.job_id = "job";
  create.paths_checked = true;
  create.spec.mutable_train()->set_steps(1000);
  create.spec.mutable_resources()->set_device("cpu");
  create.spec.mutable_resources()->mutable_time_limit()->set_seconds(60);
  h.Do(create);
  h.Tick();
  h.Step("job", 1);
  h.Pass(absl::Seconds(58), {"a"});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_RUNNING);
  h.Pass(absl::Seconds(3), {"a"});
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_CANCELLING);
  h.Exit("job", 0, v1::EXIT_REASON_STOPPED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(h.Job("job").reason_code(), "time_limit");
  EXPECT_EQ(ErrorReason(h.Resume("job").status), "TIME_LIMIT_USED_UP");
}

// A job of short steps sends reports more often than the pause between Ticks.
TEST(NextDeadline, SteadyReports_DoNotPutOffTheTick) {
  Harness h;
  h.Running(1);
  h.Tick();
  const absl::Duration due = h.core->NextDeadline();
  for (int64_t step = 2; step < 20; ++step) {
    h.now.monotonic += absl::Milliseconds(20);
    h.Step("job", step);
  }
  EXPECT_GT(h.now.monotonic, due);
  EXPECT_LE(h.core->NextDeadline(), due);
  h.Tick();
  EXPECT_GT(h.core->NextDeadline(), h.now.monotonic);
}

TEST(Job, UncheckedPaths_AreInspectedBeforeTheFirstStart) {
  Harness h;
  h.Connect("a");
  CreateJob create;
  create.job_id = "job";
  create.spec.mutable_resources()->set_device("cpu");
  h.Do(create);
  h.Tick();
  ASSERT_EQ(h.last.inspections.size(), 1u);
  EXPECT_EQ(h.Job("job").reason_code(), "checking_paths");
  InspectionDone done;
  done.job_id = "job";
  done.etag = h.last.inspections[0].etag;
  done.spec = h.last.inspections[0].spec;
  done.spec->mutable_model()->set_vocab(256);
  h.Do(done);
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.Job("job").spec().model().vocab(), 256);
}

TEST(Job, BadPaths_FailTheJobWithTheMessage) {
  Harness h;
  h.Connect("a");
  CreateJob create;
  create.job_id = "job";
  create.spec.mutable_resources()->set_device("cpu");
  h.Do(create);
  h.Tick();
  InspectionDone done;
  done.job_id = "job";
  done.status = absl::NotFoundError("data.train: /nope does not exist");
  h.Do(done);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_FAILED);
  EXPECT_THAT(h.Job("job").reason(), HasSubstr("/nope"));
}

TEST(Job, HigherPriority_PreemptsByCheckpointAndRequeue) {
  Harness h;
  h.Running(1);
  h.Create(1, "urgent", 5);
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_REQUEUEING);
  h.Step("job", 2);
  h.Checkpoint("job", 2);
  h.Exit("job", 0, v1::EXIT_REASON_STOPPED);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  h.Tick();
  EXPECT_EQ(h.State("urgent"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.Job("job").restarts(), 0);
}

// A job on "a" and "b" is ending, and will start again; "c" is free, and a younger job waits for
// two workers. It must not get "c" and the worker that is left first.
TEST(Job, ThatEndsToStartAgain_KeepsItsPlace) {
  struct Case {
    const char* name;
    void (*begin)(Harness& h);  // rank 0 ends in it, or right after it
  };
  const Case cases[] = {
      {"recovers", [](Harness& h) { h.Exit("job", 0, v1::EXIT_REASON_INTERNAL, "boom"); }},
      {"resumed while it pauses",
       [](Harness& h) {
         h.Pause("job");
         h.Resume("job");
         h.Exit("job", 0, v1::EXIT_REASON_PAUSED);
       }},
      {"drained",
       [](Harness& h) {
         h.Do(OfWorker<v1::DrainWorkerRequest>("a"));
         h.Tick();
         h.Do(OfWorker<v1::UncordonWorkerRequest>("a"));
         h.Exit("job", 0, v1::EXIT_REASON_STOPPED);
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Harness h;
    h.Running(2);
    h.Connect("c");
    h.Create(2, "young");
    h.Pass(absl::Seconds(1), {"a", "b", "c"});
    ASSERT_EQ(h.Job("young").reason(), "needs 2 workers, 1 of 3 is free");
    c.begin(h);
    h.Tick();
    EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_IDLE);
    EXPECT_EQ(h.State("young"), v1::JOB_STATE_QUEUED);
    h.Exit("job", 1, v1::EXIT_REASON_STOPPED);
    h.Tick();
    EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
    EXPECT_EQ(h.State("young"), v1::JOB_STATE_QUEUED);
  }
}

TEST(Worker, Drain_MovesTheJobAndUncordonTakesItBack) {
  Harness h;
  h.Running(1);
  EXPECT_TRUE(h.Do(OfWorker<v1::DrainWorkerRequest>("a")).reply->worker->draining());
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_REQUEUEING);
  h.Exit("job", 0, v1::EXIT_REASON_STOPPED);
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  h.Do(OfWorker<v1::UncordonWorkerRequest>("a"));
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(ErrorReason(h.Do(OfWorker<v1::CordonWorkerRequest>("nope")).reply->status),
            "WORKER_NOT_FOUND");
}

TEST(Worker, UncleanExit_MakesItUnhealthyUntilItsAgentSaysThatAllIsGone) {
  Harness h;
  const std::string job = h.Running(1);
  h.Exit(job, 0, v1::EXIT_REASON_FINISHED, "", /*clean=*/false);
  EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_UNHEALTHY);
  h.BeatHealth("a", "");  // sent before the agent had noticed
  EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_UNHEALTHY);
  h.BeatHealth("a", "GPU memory is held");
  EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_UNHEALTHY);
  h.Create(1, "next");
  h.Tick();
  EXPECT_EQ(h.State("next"), v1::JOB_STATE_QUEUED);
  h.BeatHealth("a", "");
  EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_IDLE);
  h.Tick();
  EXPECT_EQ(h.State("next"), v1::JOB_STATE_STARTING);
}

TEST(Worker, UncleanExit_MakesItUnhealthyUntilUncordonedOrRestarted) {
  Harness h;
  h.Running(1);
  h.Exit("job", 0, v1::EXIT_REASON_INTERNAL, "boom", false);
  h.Tick();
  EXPECT_EQ(h.WorkerState("a"), v1::WORKER_STATE_UNHEALTHY);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  h.Disconnect("a");
  h.Connect("a", "i2");
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
}

// The worker of rank 0, which reports the steps, is cut off: the other rank's next heartbeat tells
// of a step that was made before the cut.
TEST(Worker, CutRightBeforeAPeersHeartbeat_IsNoticedWithinFiveSeconds) {
  Harness h;
  h.Running(2);
  h.Settle({"a", "b"});
  h.Beat("a");
  h.Pass(absl::Milliseconds(500), {"b"}, false);
  h.steps["b"] = h.steps["a"] + 1;
  absl::Duration noticed = absl::Milliseconds(500);
  while (h.State("job") == v1::JOB_STATE_RUNNING && noticed < absl::Seconds(20)) {
    h.Pass(absl::Milliseconds(500), {"b"}, false);
    noticed += absl::Milliseconds(500);
  }
  EXPECT_LE(noticed, absl::Seconds(5));
  EXPECT_GE(noticed, absl::Seconds(3.5)) << "a stall of a few seconds is no loss";
}

}  // namespace
}  // namespace hearth::coordinator
