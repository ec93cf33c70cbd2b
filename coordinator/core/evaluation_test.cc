// Jobs of task: eval: which models they get, how they start, go on and end.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using M = v1::CoordinatorMessage;

class EvaluationTest : public testing::Test {
 protected:
  // A job "run" on worker "a" with checkpoints of steps 2, 4 and 6, which has ended.
  EvaluationTest() {
    h_.Connect("a");
    CreateJob create;
    create.job_id = "run";
    create.paths_checked = true;
    create.spec.mutable_train()->set_steps(6);
    h_.Do(create);
    h_.Tick();
    for (const int64_t step : {2, 4, 6}) {
      h_.Step("run", step);
      h_.Checkpoint("run", step);
    }
    h_.Exit("run", 0, v1::EXIT_REASON_FINISHED);
    EXPECT_EQ(h_.State("run"), v1::JOB_STATE_SUCCEEDED);
    h_.Tick();
    h_.sent.clear();
  }

  static CreateJob EvalOf(const std::string& job, const std::vector<int64_t>& steps = {}) {
    CreateJob create;
    create.job_id = "eval";
    create.paths_checked = true;
    create.spec.set_name("eval");
    create.spec.set_task("eval");
    create.spec.mutable_evaluate()->set_job(job);
    create.spec.mutable_evaluate()->add_data("/data/held_out");
    create.spec.mutable_resources()->set_max_restarts(2);
    for (const int64_t step : steps) {
      create.spec.mutable_evaluate()->add_steps(step);
    }
    return create;
  }
  std::string ErrorOf(const CreateJob& create) {
    const absl::Status status = h_.Do(create).reply->status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(h_.core->FindJob("eval"), nullptr);
    return std::string(status.message());
  }
  std::vector<int64_t> StepsOfModels() {
    std::vector<int64_t> steps;
    for (const v1::EvaluatedModel& model : h_.Job("eval").models()) {
      steps.push_back(model.checkpoint().step());
    }
    return steps;
  }
  // Up to RUNNING: the trainer has said what it evaluates.
  void Start() {
    h_.Tick();
    ASSERT_EQ(h_.State("eval"), v1::JOB_STATE_STARTING);
    v1::TaskReport report = h_.Next("eval", 0);
    report.mutable_run_info()->set_start_step(h_.Job("eval").step());
    h_.Report("eval", 0, report);
    ASSERT_EQ(h_.State("eval"), v1::JOB_STATE_RUNNING);
  }
  // The `model`-th model, from 1, is evaluated.
  void Result(int64_t model, double loss) {
    v1::TaskReport report = h_.Next("eval", 0);
    report.mutable_step()->set_step(model);
    v1::HeldOutLoss& held_out = *report.mutable_step()->add_held_out();
    held_out.set_source("/data/held_out");
    held_out.set_loss(loss);
    held_out.set_tokens(64);
    h_.Report("eval", 0, report);
  }
  double LossOf(int model) { return h_.Job("eval").models(model).held_out(0).loss(); }

  Harness h_;
};

TEST_F(EvaluationTest, Create_OfAJob_TakesItsRecordedCheckpoints) {
  ASSERT_TRUE(h_.Do(EvalOf("run")).reply->status.ok());
  EXPECT_THAT(StepsOfModels(), ElementsAre(2, 4, 6));
  EXPECT_EQ(h_.Job("eval").models(0).checkpoint().path(), "/ck/run/e1/step-2");
}

TEST_F(EvaluationTest, Create_WithSteps_TakesThoseTheEarliestFirst) {
  ASSERT_TRUE(h_.Do(EvalOf("run", {6, 2})).reply->status.ok());
  EXPECT_THAT(StepsOfModels(), ElementsAre(2, 6));
}

TEST_F(EvaluationTest, Create_NothingToEvaluate_IsRefusedAndNamesTheField) {
  EXPECT_EQ(ErrorOf(EvalOf("walk")), "evaluate.job: there is no job walk");
  EXPECT_EQ(ErrorOf(EvalOf("run", {2, 5})),
            "evaluate.steps: run has no checkpoint of step 5; recorded are 2, 4, 6");
  h_.Create(1, "new");
  EXPECT_EQ(ErrorOf(EvalOf("new")), "evaluate.job: no checkpoint of new is recorded");
}

TEST_F(EvaluationTest, Start_SendsTheModelsWithThisWorkersPaths) {
  h_.Do(EvalOf("run"));
  h_.Tick();
  ASSERT_NE(h_.FindSent(M::kStart, "a"), nullptr);
  const v1::Task& task = h_.FindSent(M::kStart, "a")->start().task();
  ASSERT_EQ(task.models_size(), 3);
  EXPECT_EQ(task.models(1).path(), "/ck/run/e1/step-4");
  EXPECT_EQ(task.models(1).step(), 4);
  EXPECT_EQ(task.resume_step(), 0);
  EXPECT_EQ(task.resume_path(), "");
}

TEST_F(EvaluationTest, Start_WaitsForAWorkerThatSeesTheRoot) {
  h_.Disconnect("a");
  h_.Pass(absl::Seconds(10));
  h_.roots["b"] = "other";
  h_.Connect("b");
  h_.Do(EvalOf("run"));
  h_.Tick();
  EXPECT_EQ(h_.State("eval"), v1::JOB_STATE_QUEUED) << h_.Job("eval").reason();
  EXPECT_EQ(h_.Sent(M::kStart, "b"), 0);
}

TEST_F(EvaluationTest, Results_StayWithTheJobAndAreEvents) {
  h_.Do(EvalOf("run", {2, 6}));
  Start();
  Result(1, 3.5);
  Result(2, 3.25);
  EXPECT_EQ(h_.Job("eval").step(), 2);
  EXPECT_EQ(LossOf(0), 3.5);
  EXPECT_EQ(LossOf(1), 3.25);
  EXPECT_EQ(h_.events.back().type(), "evaluation");
  EXPECT_EQ(h_.events.back().message(), "step 6 of run: /data/held_out: loss 3.2500 (64 tokens)");
  EXPECT_EQ(h_.history.back().step().held_out(0).loss(), 3.25);
  h_.Exit("eval", 0, v1::EXIT_REASON_FINISHED);
  EXPECT_EQ(h_.State("eval"), v1::JOB_STATE_SUCCEEDED);
  h_.Restart();
  EXPECT_EQ(LossOf(0), 3.5) << "stored";
}

TEST_F(EvaluationTest, PausedAndResumed_GoesOnWithTheNextModel) {
  h_.Do(EvalOf("run"));
  Start();
  Result(1, 3.5);
  h_.Pause("eval");
  EXPECT_EQ(h_.FindSent(M::kControl, "a")->control().bit(), v1::CONTROL_BIT_PAUSE);
  h_.Exit("eval", 0, v1::EXIT_REASON_PAUSED);
  EXPECT_EQ(h_.State("eval"), v1::JOB_STATE_PAUSED);
  h_.Resume("eval");
  h_.sent.clear();
  Start();
  EXPECT_EQ(h_.FindSent(M::kStart, "a")->start().task().resume_step(), 1);
  for (const v1::MetricRecord& record : h_.history) {
    EXPECT_FALSE(record.has_rewind()) << "a result that is reported is not void";
  }
  Result(2, 3.25);
  EXPECT_EQ(LossOf(0), 3.5);
  EXPECT_EQ(LossOf(1), 3.25);
}

TEST_F(EvaluationTest, ResumeAfterTheLastModel_IsRefused) {
  h_.Do(EvalOf("run", {6}));
  Start();
  Result(1, 3.5);
  h_.Exit("eval", 0, v1::EXIT_REASON_FINISHED);
  ASSERT_EQ(h_.State("eval"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(h_.Resume("eval").status.message(),
            "job eval has done its work, model 1 of 1, and cannot be extended; submit another one");
  EXPECT_EQ(h_.State("eval"), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(EvaluationTest, CancelledBeforeTheFirstResult_LeavesInOrder) {
  h_.Do(EvalOf("run"));
  Start();
  h_.Cancel("eval");
  EXPECT_EQ(h_.Sent(M::kKill), 0);
  EXPECT_EQ(h_.FindSent(M::kControl, "a")->control().bit(), v1::CONTROL_BIT_STOP);
  h_.Exit("eval", 0, v1::EXIT_REASON_STOPPED);
  EXPECT_EQ(h_.State("eval"), v1::JOB_STATE_CANCELLED);
}

TEST_F(EvaluationTest, Failures_CountFromTheLastResult) {
  h_.Do(EvalOf("run"));
  for (int i = 1; i <= 2; ++i) {
    Start();
    h_.Exit("eval", 0, v1::EXIT_REASON_INTERNAL, "boom");
    EXPECT_EQ(h_.Job("eval").restarts(), i);
  }
  Start();
  Result(1, 3.5);
  EXPECT_EQ(h_.Job("eval").restarts(), 0);
  for (int i = 1; i <= 3; ++i) {
    h_.Exit("eval", 0, v1::EXIT_REASON_INTERNAL, "boom");
    h_.Tick();
  }
  EXPECT_EQ(h_.State("eval"), v1::JOB_STATE_FAILED);
  EXPECT_THAT(h_.Job("eval").reason(), HasSubstr("failed 3 times without a new result"));
}

TEST_F(EvaluationTest, CoordinatorRestarts_TheRunGoesOn) {
  h_.Do(EvalOf("run"));
  Start();
  Result(1, 3.5);
  h_.Restart();
  h_.Connect("a", "i1", {h_.Status("eval", 0, true, 2)});
  Result(2, 3.25);
  EXPECT_EQ(h_.Job("eval").epoch(), 1);
  EXPECT_EQ(LossOf(0), 3.5);
  EXPECT_EQ(LossOf(1), 3.25);
}

// Jobs whose checkpoints are pruned while they are to be evaluated.
class HeldCheckpointsTest : public EvaluationTest {
 protected:
  static constexpr int kOthers = 300;

  // "long" runs on "a" with checkpoints of steps 2 and 4, all that it may keep; "eval" waits for a
  // worker.
  HeldCheckpointsTest() {
    CreateJob create;
    create.job_id = "long";
    create.paths_checked = true;
    create.spec.mutable_train()->set_steps(100);
    create.spec.mutable_checkpoint()->set_keep_last(2);
    h_.Do(create);
    h_.Tick();
    Save(2);
    Save(4);
    EXPECT_TRUE(h_.Do(EvalOf("long")).reply->status.ok());
    h_.Tick();
    EXPECT_EQ(h_.State("eval"), v1::JOB_STATE_QUEUED);
  }
  // Jobs that wait for a device that is not there; the plan and all else has settled.
  void AddOthers() {
    for (int i = 0; i < kOthers; ++i) {
      CreateJob other;
      other.job_id = absl::StrCat("other-", i);
      other.spec.mutable_resources()->set_device("cuda");
      h_.Do(other);
    }
    for (int i = 0; i < 30; ++i) {
      h_.Pass(absl::Milliseconds(500), {"a"}, false);
    }
  }
  void Save(int64_t step) {
    h_.Step("long", step);
    h_.Checkpoint("long", step);
  }
  // Messages of the job's events that begin so.
  std::vector<std::string> EventsOf(const std::string& job, const std::string& begin) const {
    std::vector<std::string> texts;
    for (const v1::JobEvent& event : h_.events) {
      if (event.job_id() == job && event.message().substr(0, begin.size()) == begin) {
        texts.push_back(event.message());
      }
    }
    return texts;
  }
  std::vector<int64_t> Recorded() {
    std::vector<int64_t> steps;
    for (const v1::Checkpoint& checkpoint : h_.core->FindJob("long")->checkpoints()) {
      steps.push_back(checkpoint.step());
    }
    return steps;
  }
};

TEST_F(HeldCheckpointsTest, Prune_KeepsWhatIsToBeEvaluated_UntilItIs) {
  Save(6);
  Save(8);
  EXPECT_THAT(Recorded(), ElementsAre(8, 6, 4, 2));
  h_.Connect("b");
  h_.Tick();
  v1::TaskReport report = h_.Next("eval", 0);
  report.mutable_run_info();
  h_.Report("eval", 0, report);
  Result(1, 3.5);
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(8, 6, 4)) << "step 2 is evaluated";
  Save(10);
  EXPECT_THAT(Recorded(), ElementsAre(10, 8, 4));
  Result(2, 3.25);
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(10, 8));
}

TEST_F(HeldCheckpointsTest, Prune_DropsThemWhenTheEvaluationIsCancelled) {
  Save(6);
  Save(8);
  h_.Cancel("eval");
  ASSERT_EQ(h_.State("eval"), v1::JOB_STATE_CANCELLED);
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(8, 6));
  EXPECT_EQ(h_.events.back().message(),
            "2 beyond checkpoint.keep_last dropped: no job still has to evaluate them");
}

TEST_F(HeldCheckpointsTest, Prune_AfterARestartOfTheCoordinator_DropsThemToo) {
  Save(6);
  Save(8);
  h_.Restart();
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(8, 6, 4, 2)) << "still awaited";
  h_.Cancel("eval");
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(8, 6));
}

TEST_F(HeldCheckpointsTest, PausedEvaluation_KeepsThemAndBothJobsSayWhy) {
  Save(6);
  EXPECT_THAT(
      EventsOf("long", "checkpoints stay"),
      ElementsAre("checkpoints stay beyond checkpoint.keep_last: eval still has to evaluate "
                  "them"));
  Save(8);
  h_.Pause("eval");
  ASSERT_EQ(h_.State("eval"), v1::JOB_STATE_PAUSED);
  h_.Pass(absl::Hours(2), {"a"}, false);
  Save(10);
  EXPECT_THAT(Recorded(), ElementsAre(10, 8, 4, 2)) << "also while it is paused";
  EXPECT_THAT(EventsOf("long", "checkpoints stay"),
              ElementsAre(_,
                          "checkpoints stay beyond checkpoint.keep_last: eval (paused) still has "
                          "to evaluate them"));
  EXPECT_THAT(EventsOf("eval", "checkpoints"),
              ElementsAre("checkpoints of long stay beyond its checkpoint.keep_last while this job "
                          "is paused: it still has to evaluate them; cancel it to release them"));
  const size_t events = h_.events.size();
  h_.Restart();
  h_.Tick();
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(10, 8, 4, 2));
  EXPECT_EQ(h_.events.size(), events + 2) << "of a paused job once more after a restart, by both";
  h_.Cancel("eval");
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(10, 8));
}

TEST_F(HeldCheckpointsTest, WaitingEvaluation_ARestartSaysNothingAgain) {
  Save(6);
  const size_t events = h_.events.size();
  h_.Restart();
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(6, 4, 2));
  EXPECT_EQ(h_.events.size(), events);
}

TEST_F(HeldCheckpointsTest, PausedJustBeforeACrash_IsSaidAfterTheRestart) {
  Save(6);
  h_.Pause("eval");
  ASSERT_THAT(EventsOf("eval", "checkpoints of"), ElementsAre());
  h_.Restart();
  h_.Tick();
  EXPECT_THAT(EventsOf("eval", "checkpoints of long stay"), ElementsAre(_));
  EXPECT_THAT(EventsOf("long", "checkpoints stay"), ElementsAre(_, HasSubstr("eval (paused)")));
}

TEST_F(HeldCheckpointsTest, WhatIsSaidOfThem_LeavesBothEtags) {
  Save(6);
  h_.Pause("eval");
  const std::string eval = h_.Job("eval").etag();
  const std::string run = h_.Job("long").etag();
  h_.Tick();
  ASSERT_THAT(EventsOf("eval", "checkpoints of long stay"), ElementsAre(_));
  ASSERT_THAT(EventsOf("long", "checkpoints stay"), ElementsAre(_, _));
  EXPECT_EQ(h_.Job("eval").etag(), eval);
  EXPECT_EQ(h_.Job("long").etag(), run);
}

TEST_F(HeldCheckpointsTest, Tick_LooksAtAllJobsOnlyAfterAChange) {
  Save(6);
  AddOthers();
  int64_t most = 0;
  for (int i = 0; i < 100; ++i) {
    h_.Pass(absl::Milliseconds(500), {"a"}, false);
    most = std::max(most, h_.last.visits.jobs);
  }
  EXPECT_LT(most, 100);
  h_.Cancel("eval");
  h_.Tick();
  EXPECT_THAT(Recorded(), ElementsAre(6, 4));
}

TEST_F(HeldCheckpointsTest, Tick_AfterTheRunWasDeleted_LooksNoMore) {
  Save(6);
  h_.Pause("eval");
  h_.Tick();
  h_.Exit("long", 0, v1::EXIT_REASON_BAD_DATA);
  ASSERT_EQ(h_.State("long"), v1::JOB_STATE_FAILED);
  AddOthers();
  v1::AddNoteRequest note;  // changes a job that evaluates, and no plan
  note.set_job_id("eval");
  note.set_text("text");
  ASSERT_TRUE(h_.Do(note).reply->status.ok());
  h_.Tick();
  EXPECT_GE(h_.last.visits.jobs, kOthers) << "a checkpoint is held";
  v1::DeleteJobRequest request;
  request.set_job_id("long");
  ASSERT_TRUE(h_.Do(request).reply->status.ok());
  h_.Tick();
  ASSERT_TRUE(h_.Do(note).reply->status.ok());
  h_.Tick();
  EXPECT_LT(h_.last.visits.jobs, 100);
}

TEST_F(EvaluationTest, Create_OfAnothersJob_IsForAdminsAndItsOwner) {
  CreateJob theirs;
  theirs.job_id = "theirs";
  theirs.owner = "bob";
  theirs.paths_checked = true;
  theirs.spec.mutable_train()->set_steps(6);
  h_.Do(theirs);
  h_.Tick();
  h_.Step("theirs", 2);
  h_.Checkpoint("theirs", 2);
  CreateJob create = EvalOf("theirs");
  create.owner = "ada";
  create.own_jobs_only = true;
  const absl::Status refused = h_.Do(create).reply->status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refused.message(),
            "evaluate.job: job theirs belongs to bob; an operator may evaluate their own jobs "
            "only");
  EXPECT_EQ(h_.core->FindJob("eval"), nullptr);
  create.spec.mutable_evaluate()->set_job("run");
  EXPECT_EQ(h_.Do(create).reply->status.code(), absl::StatusCode::kPermissionDenied)
      << "a job from before there were users";
  create.spec.mutable_evaluate()->set_job("theirs");
  create.owner = "bob";
  EXPECT_TRUE(h_.Do(create).reply->status.ok());
  create.job_id = "of-an-admin";
  create.owner = "ada";
  create.own_jobs_only = false;
  EXPECT_TRUE(h_.Do(create).reply->status.ok());
}

TEST_F(EvaluationTest, ModelFolders_RunWhereverThereIsAWorker) {
  CreateJob create = EvalOf("");
  create.spec.mutable_evaluate()->clear_job();
  create.spec.mutable_evaluate()->add_models("/models/one");
  ASSERT_TRUE(h_.Do(create).reply->status.ok());
  h_.Disconnect("a");
  h_.Pass(absl::Seconds(10));
  h_.roots["b"] = "other";
  h_.Connect("b");
  h_.Tick();
  ASSERT_NE(h_.FindSent(M::kStart, "b"), nullptr);
  EXPECT_EQ(h_.FindSent(M::kStart, "b")->start().task().models(0).path(), "/models/one");
}

}  // namespace
}  // namespace hearth::coordinator
