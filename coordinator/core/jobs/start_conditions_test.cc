// Jobs that wait for a time or for another job, and notes.
#include "coordinator/core/jobs/start_conditions.h"

#include "coordinator/core/errors.h"
#include "coordinator/core/transitions.h"
#include "gmock/gmock.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

v1::StartSpec After(const std::string& job_id) {
  v1::StartSpec start;
  start.set_after(job_id);
  return start;
}

v1::StartSpec NotBefore(absl::Time time) {
  v1::StartSpec start;
  *start.mutable_not_before() = ToProto(time);
  return start;
}

Reply Submit(Harness& h, const std::string& name, const v1::StartSpec& start) {
  CreateJob create;
  create.job_id = name;
  create.paths_checked = true;
  create.spec.set_name(name);
  create.spec.mutable_train()->set_steps(1'000'000);
  create.spec.mutable_resources()->set_workers(1);
  create.spec.mutable_resources()->set_device("cpu");
  *create.spec.mutable_start() = start;
  return *h.Do(create).reply;
}

// One worker comes, and of two queued jobs takes the one that waited.
void ExpectLateBehindWaiting(Harness& h) {
  h.Connect("a");
  h.Pass(absl::Seconds(1), {"a"});
  EXPECT_EQ(h.State("waiting"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.State("late"), v1::JOB_STATE_QUEUED);
}

Reply ResumeWith(Harness& h, const std::string& name, const v1::StartSpec& start) {
  ResumeJob resume;
  resume.job_id = name;
  resume.spec = h.Job(name).spec();
  *resume.spec->mutable_start() = start;
  resume.overrides.push_back({"start", "", ""});
  return *h.Do(resume).reply;
}

void Jump(Harness& h, absl::Duration by) {
  h.now.wall += by;
}

TEST(NotBefore, TimeInTheFuture_HoldsTheJobAndSaysSoUntilItComes) {
  Harness h;
  h.Connect("a");
  EXPECT_TRUE(Submit(h, "late", NotBefore(h.now.wall + absl::Hours(2))).status.ok());
  h.Tick();
  EXPECT_EQ(h.State("late"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.Job("late").reason_code(), "start_time");
  EXPECT_THAT(h.Job("late").reason(), HasSubstr("2023-11-15 00:13:20 UTC (start.not_before)"));
  h.Pass(absl::Seconds(30), {"a"});
  EXPECT_EQ(h.State("late"), v1::JOB_STATE_QUEUED);
  Jump(h, absl::Hours(2));
  h.Tick();
  EXPECT_EQ(h.State("late"), v1::JOB_STATE_STARTING);
}

TEST(NotBefore, HeldJob_KeepsNoWorkerFromOthers) {
  Harness h;
  h.Connect("a");
  Submit(h, "late", NotBefore(h.now.wall + absl::Hours(2)));
  h.Create(1, "other");
  h.Tick();
  EXPECT_EQ(h.State("other"), v1::JOB_STATE_STARTING);
}

TEST(NotBefore, PastTime_StartsAtOnceWithAWarning) {
  Harness h;
  h.Connect("a");
  const Reply reply = Submit(h, "late", NotBefore(h.now.wall - absl::Seconds(1)));
  EXPECT_THAT(reply.job->warnings(0), HasSubstr("has already passed"));
  h.Tick();
  EXPECT_EQ(h.State("late"), v1::JOB_STATE_STARTING);
}

// Once the time has come it stays so, whatever the clock does later.
TEST(NotBefore, ClockThatJumpsBack_HoldsNoJobAgain) {
  Harness h;
  Submit(h, "late", NotBefore(h.now.wall + absl::Minutes(5)));
  Jump(h, absl::Minutes(6));
  h.Tick();
  Jump(h, -absl::Hours(3));
  h.Restart();
  h.Connect("a");
  h.Pass(absl::Seconds(4), {"a"});
  EXPECT_EQ(h.State("late"), v1::JOB_STATE_STARTING);
}

TEST(NotBefore, RestartWhileHeld_HoldsOn) {
  Harness h;
  Submit(h, "late", NotBefore(h.now.wall + absl::Hours(1)));
  h.Restart();
  h.Connect("a");
  h.Pass(absl::Seconds(5), {"a"});
  EXPECT_EQ(h.State("late"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.Job("late").reason_code(), "start_time");
  Jump(h, absl::Hours(1));
  h.Tick();
  EXPECT_EQ(h.State("late"), v1::JOB_STATE_STARTING);
}

// Else a place in the queue could be had for later.
TEST(NotBefore, JobThatIsLetGo_StandsBehindThoseThatWaited) {
  Harness h;
  Submit(h, "late", NotBefore(h.now.wall + absl::Minutes(1)));
  h.Pass(absl::Seconds(10));
  h.Create(1, "waiting");
  h.Pass(absl::Seconds(1));
  Jump(h, absl::Minutes(2));
  h.Tick();
  ExpectLateBehindWaiting(h);
}

TEST(After, FirstSucceeds_StartsTheOther) {
  Harness h;
  h.Running(1, "first");
  h.Connect("b");
  Submit(h, "second", After("first"));
  h.Pass(absl::Seconds(2), {"a", "b"});
  EXPECT_EQ(h.State("second"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.Job("second").reason_code(), "after_job");
  EXPECT_THAT(h.Job("second").reason(), HasSubstr("job first to succeed"));
  h.Exit("first", 0, v1::EXIT_REASON_FINISHED);
  h.Tick();
  EXPECT_EQ(h.State("second"), v1::JOB_STATE_STARTING);
}

// The success counts, even if no tick has come between it and the extension. A job that comes later
// waits for the new end.
TEST(After, FirstSucceedsAndIsExtendedAtOnce_StartsTheOther) {
  for (const bool cancelled : {false, true}) {
    Harness h;
    h.Running(1, "first");
    h.Connect("b");
    Submit(h, "second", After("first"));
    h.Pass(absl::Seconds(2), {"a", "b"});
    h.Checkpoint("first", h.Job("first").step());
    h.Exit("first", 0, v1::EXIT_REASON_FINISHED);
    ASSERT_EQ(h.State("first"), v1::JOB_STATE_SUCCEEDED);
    ResumeJob resume;
    resume.job_id = "first";
    resume.spec = h.Job("first").spec();
    resume.spec->mutable_train()->set_steps(2'000'000);
    ASSERT_TRUE(h.Do(resume).reply->status.ok());
    EXPECT_TRUE(h.core->FindJob("second")->start().job_succeeded());
    Submit(h, "third", After("first"));
    if (cancelled) {
      h.Cancel("first");
    }
    h.Tick();
    EXPECT_EQ(h.State("second"), v1::JOB_STATE_STARTING);
    EXPECT_EQ(h.State("third"), cancelled ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_QUEUED);
  }
}

TEST(After, FirstEndsOtherwise_CancelsTheWholeChain) {
  for (const bool deleted : {false, true}) {
    Harness h;
    h.Create(1, "first");
    Submit(h, "second", After("first"));
    Submit(h, "third", After("second"));
    h.Tick();
    h.Cancel("first");
    if (deleted) {
      v1::DeleteJobRequest request;
      request.set_job_id("first");
      h.Do(request);
    }
    h.Tick();
    EXPECT_EQ(h.State("second"), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(h.Job("second").reason_code(), "after_not_succeeded");
    EXPECT_THAT(h.Job("second").reason(), HasSubstr(deleted ? "was deleted" : "is cancelled"));
    EXPECT_EQ(h.State("third"), v1::JOB_STATE_CANCELLED);
  }
}

// What has come about stays so: deleting the first job, or giving its id to another one, comes too
// late.
TEST(After, FirstSucceedsAndIsDeletedAtOnce_StartsTheOther) {
  for (const bool id_is_taken : {false, true}) {
    Harness h;
    h.Running(1, "first");
    h.Connect("b");
    Submit(h, "second", After("first"));
    h.Pass(absl::Seconds(2), {"a", "b"});
    h.Exit("first", 0, v1::EXIT_REASON_FINISHED);
    v1::DeleteJobRequest request;
    request.set_job_id("first");
    h.Do(request);
    if (id_is_taken) {
      h.Create(1, "first");
    }
    h.Tick();
    EXPECT_EQ(h.State("second"), v1::JOB_STATE_STARTING);
  }
}

// What first waited for has come about, so another job of that id may wait for first.
TEST(After, LinksThatAreFulfilled_MakeNoCircle) {
  Harness h;
  h.Running(1, "third");
  Submit(h, "first", After("third"));
  h.Exit("third", 0, v1::EXIT_REASON_FINISHED);
  h.Tick();
  v1::DeleteJobRequest request;
  request.set_job_id("third");
  h.Do(request);
  Submit(h, "third", After("first"));
  h.Tick();
  EXPECT_EQ(h.Job("third").reason_code(), "after_job");
}

// The coordinator stopped after the first job's end was committed and before the next tick.
TEST(After, RestartRightAfterTheEnd_IsNoticed) {
  for (const v1::ExitReason reason : {v1::EXIT_REASON_FINISHED, v1::EXIT_REASON_BAD_DATA}) {
    Harness h;
    h.Running(1, "first");
    Submit(h, "second", After("first"));
    h.Exit("first", 0, reason);
    h.Restart();
    h.Connect("a");
    h.Pass(absl::Seconds(4), {"a"});
    EXPECT_EQ(h.State("second"), reason == v1::EXIT_REASON_FINISHED ? v1::JOB_STATE_STARTING
                                                                    : v1::JOB_STATE_CANCELLED);
  }
}

TEST(After, FirstSucceededAndWasDeleted_StillCounts) {
  Harness h;
  h.Running(1, "first");
  v1::StartSpec both = NotBefore(h.now.wall + absl::Hours(1));
  both.set_after("first");
  Submit(h, "second", both);
  h.Tick();
  EXPECT_THAT(h.Job("second").reason(), HasSubstr(" and for job first to succeed"));
  h.Exit("first", 0, v1::EXIT_REASON_FINISHED);
  h.Tick();
  v1::DeleteJobRequest request;
  request.set_job_id("first");
  h.Do(request);
  h.Tick();
  EXPECT_EQ(h.State("second"), v1::JOB_STATE_QUEUED);
  Jump(h, absl::Hours(1));
  h.Pass(absl::Seconds(1), {"a"});
  EXPECT_EQ(h.State("second"), v1::JOB_STATE_STARTING);
}

TEST(After, JobThatCannotSucceed_IsRefused) {
  Harness h;
  h.Create(1, "first");
  EXPECT_THAT(std::string(Submit(h, "x", After("none")).status.message()),
              HasSubstr("start.after: there is no job none"));
  h.Cancel("first");
  EXPECT_EQ(Submit(h, "x", After("first")).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.core->FindJob("x"), nullptr);
}

TEST(After, Circle_IsRefusedOnResume) {
  Harness h;
  h.Create(1, "first");
  Submit(h, "second", After("first"));
  Submit(h, "third", After("second"));
  h.Pause("first");
  EXPECT_THAT(std::string(ResumeWith(h, "first", After("third")).status.message()),
              HasSubstr("job third waits for this job"));
  EXPECT_EQ(h.State("first"), v1::JOB_STATE_PAUSED);
  EXPECT_THAT(std::string(ResumeWith(h, "first", After("first")).status.message()),
              HasSubstr("waits for this job"));
}

TEST(Resume, OtherStart_HoldsTheJobByIt) {
  Harness h;
  h.Connect("a");
  h.Create(1, "job");
  h.Pause("job");
  EXPECT_TRUE(ResumeWith(h, "job", NotBefore(h.now.wall + absl::Hours(1))).status.ok());
  h.Tick();
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(h.Job("job").reason_code(), "start_time");
  h.Pause("job");
  EXPECT_TRUE(ResumeWith(h, "job", v1::StartSpec()).status.ok());
  h.Tick();
  EXPECT_EQ(h.Job("job").reason_code(), "checking_paths") << "as after any change of the spec";
}

// Else a place in the queue could be had by waiting for a time that never comes.
TEST(Resume, WithoutTheStartThatHeldIt_StandsBehindThoseThatWaited) {
  Harness h;
  Submit(h, "late", NotBefore(h.now.wall + absl::Hours(1)));
  h.Tick();
  h.Pause("late");
  h.Pass(absl::Seconds(10));
  h.Create(1, "waiting");
  h.Pass(absl::Seconds(1));
  ResumeJob resume;
  resume.job_id = "late";
  resume.spec = h.Job("late").spec();
  resume.spec->clear_start();
  ASSERT_TRUE(h.Do(resume).reply->status.ok());
  ExpectLateBehindWaiting(h);
}

TEST(Resume, CancelledBecauseOfItsFirst_WaitsForItAgainOnceThatLives) {
  Harness h;
  h.Create(1, "first");
  Submit(h, "second", After("first"));
  h.Cancel("first");
  h.Tick();
  ASSERT_EQ(h.State("second"), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(h.Resume("second").status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.State("second"), v1::JOB_STATE_CANCELLED);
  h.Resume("first");
  EXPECT_TRUE(h.Resume("second").status.ok());
  h.Tick();
  EXPECT_EQ(h.Job("second").reason_code(), "after_job");
}

TEST(AddNote, Text_BecomesAnEventOfTheUserOnce) {
  Harness h;
  h.Create(1, "job");
  v1::AddNoteRequest request;
  request.set_job_id("job");
  request.set_text("a better learning rate");
  request.set_request_id("r1");
  EXPECT_TRUE(h.Do(request).reply->status.ok());
  EXPECT_TRUE(h.Do(request).reply->status.ok());
  ASSERT_EQ(h.events.size(), 2u);
  EXPECT_EQ(h.events.back().type(), "note");
  EXPECT_EQ(h.events.back().actor(), "user");
  EXPECT_EQ(h.events.back().message(), "a better learning rate");
  request.set_request_id("r2");
  request.set_text(" \n");
  EXPECT_EQ(h.Do(request).reply->status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::coordinator
