#include "worker/trainer/rank/rank_context.h"

#include "common/base/status.h"
#include "gtest/gtest.h"
#include "kernels/gemm/native_error.h"
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

// A disk that fails while a job with a GPU reads model.from is not the GPU's fault, and an error of
// the GPU is, whatever the rank was doing when it came to light.
TEST(RankContextTest, BlameFor_OnlyErrorsOfADevice_GoBeforeTheStage) {
  OneRank alone;
  RankContext& rank = alone.rank;
  rank.blame = v1::EXIT_REASON_BAD_DATA;
  EXPECT_EQ(rank.BlameFor(absl::InternalError("reading /m: Input/output error")),
            v1::EXIT_REASON_BAD_DATA);
  const absl::Status device = kernels::DeviceError("cudaMemcpy: cudaErrorLaunchFailure");
  EXPECT_EQ(device.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(rank.BlameFor(device), v1::EXIT_REASON_DEVICE);
  EXPECT_EQ(rank.BlameFor(Annotate(device, "gemm")), v1::EXIT_REASON_DEVICE);
  EXPECT_EQ(rank.BlameFor(kernels::NativeGemmError(device)), v1::EXIT_REASON_DEVICE);
}

}  // namespace
}  // namespace hearth::trainer
