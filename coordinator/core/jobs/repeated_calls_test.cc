#include "coordinator/core/jobs/repeated_calls.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/queued_job.h"

namespace hearth::coordinator {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RepeatedCallsTest : public testing::Test {
 protected:
  RepeatedCallsTest() {
    for (const char* id : {"job", "other"}) {
      jobs_.Add(QueuedJob(id), now_);
    }
  }
  void Begin(absl::Duration later = absl::ZeroDuration()) {
    now_.monotonic += later;
    turn_.Begin(now_);
  }
  absl::StatusCode Code() { return turn_.effects().reply->status.code(); }

  const CoreOptions options_{};
  const CommandRow& cancel_ = RowOf(typeid(v1::CancelJobRequest));
  const CommandRow& pause_ = RowOf(typeid(v1::PauseJobRequest));
  Now now_{absl::FromUnixSeconds(1700000000), absl::Seconds(1000)};
  PlanTimer plan_{absl::Seconds(1000)};
  Turn turn_{1, now_};
  Jobs jobs_{plan_, kDefaultAging, 0};
  RepeatedCalls calls_{options_, turn_, jobs_};
};

TEST_F(RepeatedCallsTest, NewId_IsToBeApplied) {
  EXPECT_FALSE(calls_.AnsweredBefore({"r1", "job"}, cancel_));
  EXPECT_FALSE(turn_.effects().reply.has_value());
}

TEST_F(RepeatedCallsTest, SentAgain_IsAnsweredWithTheJobAsItIsNow) {
  calls_.Remember({"r1", "job"}, cancel_, "job");
  ASSERT_THAT(turn_.effects().requests, SizeIs(1));
  EXPECT_EQ(turn_.effects().requests[0].method(), "cancel");
  jobs_.Edit("job")->set_reason("changed", "changed since");
  Begin();
  EXPECT_TRUE(calls_.AnsweredBefore({"r1", "job"}, cancel_));
  EXPECT_EQ(turn_.effects().reply->job->reason(), "changed since");
  EXPECT_TRUE(turn_.effects().NothingDurable());
}

TEST_F(RepeatedCallsTest, IdOfAnotherCallOrJob_IsRefused) {
  calls_.Remember({"r1", "job"}, cancel_, "job");
  EXPECT_TRUE(calls_.AnsweredBefore({"r1", "job"}, pause_));
  EXPECT_EQ(Code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(turn_.effects().reply->status.message()), HasSubstr("cancel job job"));
  Begin();
  EXPECT_TRUE(calls_.AnsweredBefore({"r1", "other"}, cancel_));
  EXPECT_EQ(Code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RepeatedCallsTest, JobDeletedSince_IsNotFound) {
  calls_.Remember({"r1", "job"}, cancel_, "job");
  jobs_.Delete("job", turn_.effects());
  EXPECT_TRUE(calls_.AnsweredBefore({"r1", "job"}, cancel_));
  EXPECT_EQ(Code(), absl::StatusCode::kNotFound);
}

TEST_F(RepeatedCallsTest, WithoutRequestId_NothingIsKept) {
  calls_.Remember({"", "job"}, cancel_, "job");
  EXPECT_THAT(turn_.effects().requests, IsEmpty());
  EXPECT_FALSE(calls_.AnsweredBefore({"", "job"}, cancel_));
}

TEST_F(RepeatedCallsTest, Expire_AfterItsTimeOnly_ForgetsTheAnswer) {
  calls_.Remember({"r1", "job"}, cancel_, "job");
  Begin(options_.request_ttl - absl::Seconds(1));
  calls_.Expire();
  EXPECT_TRUE(calls_.AnsweredBefore({"r1", "job"}, cancel_));
  Begin(absl::Seconds(1));
  calls_.Expire();
  EXPECT_THAT(turn_.effects().request_deletes, testing::ElementsAre("r1"));
  EXPECT_FALSE(calls_.AnsweredBefore({"r1", "job"}, cancel_));
}

}  // namespace
}  // namespace hearth::coordinator
