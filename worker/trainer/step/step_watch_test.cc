#include "worker/trainer/step/step_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/common/fake_clock.h"
#include "worker/trainer/comm/solo_collective.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

// A rank of four that says what it is told to.
class SickCollective : public SoloCollective {
 public:
  absl::Status health;
  int asked = 0;

  int rank() const override { return 2; }
  int world_size() const override { return 4; }
  absl::Status Health() override {
    ++asked;
    return health;
  }
};

class StepWatchTest : public ::testing::Test {
 protected:
  // Waits for a step that is done after `step`; each look takes `look`.
  absl::Status Await(absl::Duration step, absl::Duration look = absl::Milliseconds(50)) {
    const absl::Duration end = clock_.Monotonic() + step;
    return watch_.Await(120, [&]() -> absl::StatusOr<bool> {
      clock_.Advance(look);
      return clock_.Monotonic() >= end;
    });
  }

  FakeClock clock_;
  SickCollective comm_;
  StepWatch watch_{comm_, clock_};
};

TEST_F(StepWatchTest, StepThatEnds_IsWaitedForAndTheTransportAskedNowAndThen) {
  EXPECT_TRUE(Await(absl::Seconds(1)).ok());
  EXPECT_GE(comm_.asked, 8);
  EXPECT_LE(comm_.asked, 11);
  EXPECT_TRUE(Await(absl::Seconds(59)).ok());
}

TEST_F(StepWatchTest, StepThatNeverEnds_IsGivenUpInWords) {
  const absl::Duration start = clock_.Monotonic();
  const absl::Status status = Await(absl::InfiniteDuration());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 of 4 has waited 60."));
  EXPECT_THAT(std::string(status.message()), HasSubstr(" s for step 120 (limit 60 s"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a collective in which a peer does not take part"));
  EXPECT_LT(clock_.Monotonic() - start, absl::Seconds(61));
}

TEST_F(StepWatchTest, LongSteps_GetTwentyTimesTheLongest) {
  EXPECT_EQ(watch_.limit(), absl::Seconds(60));
  watch_.Took(absl::Seconds(2));
  EXPECT_EQ(watch_.limit(), absl::Seconds(60));
  watch_.Took(absl::Seconds(30));
  watch_.Took(absl::Seconds(3));
  EXPECT_EQ(watch_.limit(), absl::Seconds(600));
  EXPECT_TRUE(Await(absl::Seconds(590), absl::Seconds(1)).ok());
  EXPECT_EQ(Await(absl::Seconds(610), absl::Seconds(1)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(StepWatchTest, StepAfterAPause_WaitsForPeersThatWriteCheckpoints) {
  watch_.Paused();
  EXPECT_TRUE(Await(absl::Minutes(20), absl::Seconds(1)).ok());
  watch_.Took(absl::Minutes(20));
  EXPECT_EQ(watch_.limit(), absl::Seconds(60)) << "of that step alone, which is not the longest";
}

TEST_F(StepWatchTest, ErrorsOfTransportAndDevice_EndTheWait) {
  comm_.health = absl::UnavailableError("rank 2 of 4 on node1 (GPU 0000:1B:00.0): remote error");
  const absl::Duration start = clock_.Monotonic();
  EXPECT_EQ(Await(absl::InfiniteDuration()), comm_.health);
  EXPECT_LT(clock_.Monotonic() - start, absl::Seconds(1));
  const absl::Status broken = watch_.Await(
      1, []() -> absl::StatusOr<bool> { return absl::InternalError("illegal address"); });
  EXPECT_EQ(broken.code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace hearth::trainer
