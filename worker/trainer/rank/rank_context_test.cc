#include "worker/trainer/rank/rank_context.h"

#include "gtest/gtest.h"
#include "tests/support/trainer/one_rank.h"

namespace hearth::trainer {
namespace {

TEST(RankContextTest, Due_EveryAndLastStep) {
  v1::JobSpec spec;
  spec.mutable_train()->set_steps(7);
  const OneRank one(spec);
  const RankContext& rank = one.rank;
  EXPECT_TRUE(rank.Due(3, 3));
  EXPECT_FALSE(rank.Due(4, 3));
  EXPECT_FALSE(rank.Due(3, 0));
  EXPECT_TRUE(rank.Due(7, 3));
  EXPECT_TRUE(rank.Due(7, 0));
}

TEST(RankContextTest, Blame_FollowsTheKindOfError) {
  OneRank alone;
  RankContext& rank = alone.rank;
  const struct {
    absl::Status status;
    v1::ExitReason blamed;
  } cases[] = {
      {absl::DataLossError("a"), v1::EXIT_REASON_BAD_DATA},
      {absl::OutOfRangeError("b"), v1::EXIT_REASON_BAD_DATA},
      {absl::UnavailableError("c"), v1::EXIT_REASON_COMM},
      {absl::DeadlineExceededError("d"), v1::EXIT_REASON_COMM},
      {absl::InternalError("e"), v1::EXIT_REASON_INTERNAL},  // the task's device is a CPU
  };
  for (const auto& one : cases) {
    EXPECT_EQ(rank.Blame(one.status), one.status);
    EXPECT_EQ(rank.blame, one.blamed) << one.status;
  }
}

}  // namespace
}  // namespace hearth::trainer
