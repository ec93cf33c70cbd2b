#include "worker/trainer/rank/checkpoint/checkpoint_duty.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "common/io/faulty_env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/one_rank.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CheckpointDutyTest : public testing::Test {
 protected:
  // Checkpoints every two of ten steps.
  void Open(int rank_number = 0) {
    v1::JobSpec spec = SmallJob(data_.path());
    spec.mutable_train()->set_steps(10);
    spec.mutable_checkpoint()->set_every_steps(2);
    one_.emplace(spec, env_, rank_number);
    duty_.emplace(one_->rank, one_->meeting, one_->session, /*prune=*/false, [] {
      RunIdentity identity;
      identity.job_id = "small";
      identity.epoch = 1;
      return identity;
    });
    ASSERT_TRUE(duty_->Start().ok());
  }
  void Step(bool asked = false) {
    StepResult result = one_->Step();
    const absl::Status saved = duty_->SaveIfDue(result, asked);
    EXPECT_TRUE(saved.ok()) << saved;
  }
  std::vector<int64_t> Announced() const {
    std::vector<int64_t> steps;
    for (const v1::CheckpointAnnouncement& checkpoint : one_->link.checkpoints) {
      steps.push_back(checkpoint.step());
    }
    return steps;
  }

  TempDir data_;
  FaultyEnv env_{Env::Real()};
  std::optional<OpenRank> one_;
  std::optional<CheckpointDuty> duty_;
};

TEST_F(CheckpointDutyTest, SaveIfDue_WritesWhatIsDueOrAskedFor) {
  Open();
  Step();
  Step(/*asked=*/true);  // waits for the disk, as the test does
  Step(/*asked=*/true);
  ASSERT_TRUE(duty_->Finish(std::nullopt).ok());
  EXPECT_THAT(Announced(), ElementsAre(2, 3));
  EXPECT_EQ(duty_->committed_step(), 3);
  EXPECT_EQ(duty_->skipped(), 0);
}

TEST_F(CheckpointDutyTest, Finish_WritesTheLastStepOnce) {
  Open();
  Step();
  Step();
  Step();
  ASSERT_TRUE(duty_->Finish(std::nullopt).ok());
  EXPECT_THAT(Announced(), ElementsAre(2, 3));
  ASSERT_TRUE(duty_->Finish(std::nullopt).ok());
  EXPECT_THAT(Announced(), ElementsAre(2, 3)) << "step 3 is on disk";
}

TEST_F(CheckpointDutyTest, Finish_AtTheStepThatItResumedFrom_HasNothingToSave) {
  Open();
  Step();
  ASSERT_TRUE(duty_->Finish(std::optional<int64_t>(1)).ok());
  EXPECT_THAT(Announced(), IsEmpty());
  EXPECT_EQ(duty_->committed_step(), 0);
}

// A run does not end well without its last checkpoint.
TEST_F(CheckpointDutyTest, Finish_OnAFullDisk_IsAnErrorOfTheDisk) {
  Open();
  Step();
  env_.SetDiskSpace(0);
  one_->rank.blame = v1::EXIT_REASON_INTERNAL;
  const absl::Status finished = duty_->Finish(std::nullopt);
  EXPECT_EQ(finished.code(), absl::StatusCode::kResourceExhausted) << finished;
  EXPECT_EQ(one_->rank.blame, v1::EXIT_REASON_IO);
  EXPECT_THAT(Announced(), IsEmpty());
}

// Rank 0 writes for all where all have the same state.
TEST_F(CheckpointDutyTest, ARankThatOthersWriteFor_WritesNothing) {
  Open(1);
  const int64_t before = env_.operations();
  Step();
  Step(/*asked=*/true);
  ASSERT_TRUE(duty_->TakeFinished().ok());
  ASSERT_TRUE(duty_->Finish(std::nullopt).ok());
  EXPECT_EQ(env_.operations(), before);
  EXPECT_THAT(Announced(), IsEmpty());
  EXPECT_THAT(one_->link.phases, IsEmpty());
}

}  // namespace
}  // namespace hearth::trainer
