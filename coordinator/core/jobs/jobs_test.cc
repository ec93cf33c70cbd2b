#include "coordinator/core/jobs/jobs.h"

#include "coordinator/core/errors.h"
#include "coordinator/core/jobs/requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/queued_job.h"

namespace hearth::coordinator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class JobsTest : public testing::Test {
 protected:
  JobState& Add() { return jobs_.Add(QueuedJob("job"), now_); }
  void Go(v1::JobState to, const char* code) {
    jobs_.Transition(*jobs_.Edit("job"), to, "test", code, "because", now_, effects_);
  }

  Now now_{absl::FromUnixSeconds(1700000000), absl::Seconds(1000), "boot"};
  PlanTimer plan_{absl::Seconds(1000)};
  Jobs jobs_{plan_, kDefaultAging, 41};
  Effects effects_;
};

TEST_F(JobsTest, Transition_WritesOneEventAndKeepsTheSets) {
  Add();
  EXPECT_TRUE(jobs_.waiting().Has("job"));
  Go(v1::JOB_STATE_STARTING, "scheduled");
  EXPECT_FALSE(jobs_.waiting().Has("job"));
  EXPECT_THAT(jobs_.active(), ElementsAre("job"));
  ASSERT_THAT(effects_.events, SizeIs(1));
  EXPECT_EQ(effects_.events[0].revision(), 42);
  EXPECT_EQ(effects_.events[0].from_state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(jobs_.at("job").job().revision(), 42);
  EXPECT_EQ(jobs_.reason_counts().at("scheduled"), 1);
  jobs_.Flush(effects_);
  ASSERT_THAT(effects_.jobs, SizeIs(1));
  EXPECT_TRUE(effects_.jobs[0].durable);
}

TEST_F(JobsTest, RunningSeconds_AddUpOverPauses) {
  Add();
  Go(v1::JOB_STATE_STARTING, "scheduled");
  Go(v1::JOB_STATE_RUNNING, "first_step");
  now_.monotonic += absl::Seconds(30);
  Go(v1::JOB_STATE_PAUSING, "user_pause");
  EXPECT_EQ(jobs_.at("job").job().running_seconds(), 30);
  Go(v1::JOB_STATE_PAUSED, "user_pause");
  Go(v1::JOB_STATE_QUEUED, "user_resume");
  Go(v1::JOB_STATE_STARTING, "scheduled");
  now_.monotonic += absl::Seconds(100);
  Go(v1::JOB_STATE_RUNNING, "first_step");
  now_.monotonic += absl::Seconds(5);
  EXPECT_EQ(Jobs::RunningSeconds(jobs_.at("job"), now_.monotonic), 35);
}

TEST_F(JobsTest, Mark_ForReadersAlone_IsNotDurable) {
  Add();
  jobs_.Mark(jobs_.at("job"), false);
  jobs_.Flush(effects_);
  ASSERT_THAT(effects_.jobs, SizeIs(1));
  EXPECT_FALSE(effects_.jobs[0].durable);
  jobs_.Mark(jobs_.at("job"), true);
  jobs_.Delete("job", effects_);
  Effects after;
  jobs_.Flush(after);
  EXPECT_THAT(after.jobs, IsEmpty());
}

// The wall clock has jumped by a day meanwhile, either way.
TEST_F(JobsTest, Restore_CountsTimeWhileTheCoordinatorWasAway_ByTheMonotonicClock) {
  v1::JobRecord record;
  record.mutable_job()->set_job_id("job");
  record.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
  record.set_running_base(7);
  *record.mutable_running_since() = MomentOf(Before(now_, absl::Seconds(60)));
  record.add_ranks()->set_applied_seq(-5);
  for (const absl::Duration jump : {absl::Hours(24), -absl::Hours(24)}) {
    *record.mutable_job()->mutable_state_time() = ToProto(now_.wall + jump);
    jobs_.Restore(record, now_);
    EXPECT_EQ(Jobs::RunningSeconds(jobs_.at("job"), now_.monotonic), 67);
  }
  EXPECT_EQ(jobs_.at("job").record().ranks(0).applied_seq(), 0);
  EXPECT_THAT(jobs_.active(), ElementsAre("job"));
}

TEST_F(JobsTest, Restore_AfterABootOfTheMachine_CountsWhatWasReported) {
  v1::JobRecord record;
  record.mutable_job()->set_job_id("job");
  record.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
  record.mutable_job()->set_running_seconds(40);
  record.set_running_base(7);
  *record.mutable_running_since() = MomentOf({now_.wall, absl::Hours(100), "the boot before"});
  jobs_.Restore(record, now_);
  EXPECT_EQ(Jobs::RunningSeconds(jobs_.at("job"), now_.monotonic + absl::Seconds(2)), 42);
  // A further restart of the coordinator counts on from there.
  const v1::JobRecord again = jobs_.at("job").record();
  now_.monotonic += absl::Seconds(10);
  jobs_.Restore(again, now_);
  EXPECT_EQ(Jobs::RunningSeconds(jobs_.at("job"), now_.monotonic), 50);
}

TEST(RequestsTest, TheOldestAreForgotten_ByNumberAndByAge) {
  CoreOptions options;
  options.max_requests = 2;
  Requests requests(options);
  Effects effects;
  const absl::Duration start = absl::Hours(1);
  for (int i = 0; i < 3; ++i) {
    v1::RequestRecord record;
    record.set_request_id(std::string(1, static_cast<char>('a' + i)));
    requests.Remember(record, start + absl::Seconds(i), effects);
  }
  EXPECT_THAT(effects.requests, SizeIs(3));
  requests.Expire(start + absl::Seconds(3), effects);
  EXPECT_THAT(effects.request_deletes, ElementsAre("a"));
  EXPECT_EQ(requests.Find("a"), nullptr);
  EXPECT_NE(requests.Find("b"), nullptr);
  requests.Expire(start + options.request_ttl + absl::Seconds(1), effects);
  EXPECT_THAT(effects.request_deletes, ElementsAre("a", "b"));
}

TEST(RequestsTest, Restored_AreKeptForTheWholeTimeWhateverTheWallClockSays) {
  const CoreOptions options;
  Requests requests(options);
  v1::RequestRecord newer;
  newer.set_request_id("newer");
  *newer.mutable_time() = ToProto(absl::FromUnixSeconds(1700000000));
  v1::RequestRecord older;
  older.set_request_id("older");
  *older.mutable_time() = ToProto(absl::FromUnixSeconds(1));
  const absl::Duration start = absl::Hours(1);
  requests.Restore({newer, older}, start);
  Effects effects;
  requests.Expire(start + options.request_ttl - absl::Seconds(1), effects);
  EXPECT_THAT(effects.request_deletes, IsEmpty());
  requests.Expire(start + options.request_ttl, effects);
  EXPECT_THAT(effects.request_deletes, ElementsAre("older", "newer"));
}

}  // namespace
}  // namespace hearth::coordinator
