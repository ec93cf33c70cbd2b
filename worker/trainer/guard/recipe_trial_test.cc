#include "worker/trainer/guard/recipe_trial.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// nvfp4, then `fallback`; none: BF16 is not on its ladder.
v1::JobSpec Job(double max_gap = 0.01, const std::string& fallback = "bf16") {
  v1::JobSpec job;
  job.mutable_precision()->set_recipe("nvfp4");
  job.mutable_precision()->add_fallback(fallback);
  job.mutable_precision()->mutable_trial()->set_steps(100);
  job.mutable_precision()->mutable_trial()->set_max_gap(max_gap);
  return job;
}

v1::PrecisionTrialRun Trained(double training) {
  v1::PrecisionTrialRun run;
  run.set_training_loss(training);
  return run;
}

v1::PrecisionTrialRun HeldOut(double held_out, double training = 1) {
  v1::PrecisionTrialRun run = Trained(training);
  run.set_held_out_loss(held_out);
  return run;
}

// What is chosen after BF16's run and nvfp4's.
Trial After(const v1::JobSpec& job, v1::PrecisionTrialRun bf16, v1::PrecisionTrialRun nvfp4) {
  Trial trial(job, "x", {});
  EXPECT_EQ(trial.next(), "bf16");
  EXPECT_TRUE(trial.Add(std::move(bf16)).ok());
  EXPECT_EQ(trial.next(), "nvfp4");
  EXPECT_TRUE(trial.Add(std::move(nvfp4)).ok());
  EXPECT_TRUE(trial.decided());
  return trial;
}

TEST(FinalLoss, IsTheMeanOfATenthAtMost200) {
  EXPECT_EQ(FinalLossWindow(1), 1);
  EXPECT_EQ(FinalLossWindow(99), 9);
  EXPECT_EQ(FinalLossWindow(100000), 200);
  EXPECT_DOUBLE_EQ(MeanOfLast({9, 1, 2}, 2), 1.5);
  EXPECT_DOUBLE_EQ(MeanOfLast({9, 1, 2}, 5), 4);
}

TEST(RelativeGap, NeedsTwoNumbers) {
  EXPECT_THAT(RelativeGap(2.1, 2.0), Optional(DoubleNear(0.05, 1e-12)));
  EXPECT_THAT(RelativeGap(1.9, 2.0), Optional(DoubleNear(-0.05, 1e-12)));
  EXPECT_EQ(RelativeGap(kNan, 2.0), std::nullopt);
  EXPECT_EQ(RelativeGap(2.0, kNan), std::nullopt);
  EXPECT_EQ(RelativeGap(std::nullopt, 2.0), std::nullopt);
  EXPECT_EQ(RelativeGap(2.0, 0.0), std::nullopt);
}

TEST(Trial, ChoosesTheFirstThatIsCloseEnough) {
  EXPECT_EQ(After(Job(), Trained(2), Trained(2.01)).state().chosen(), "nvfp4");
  EXPECT_EQ(After(Job(), Trained(2), Trained(2.03)).state().chosen(), "bf16");
  EXPECT_EQ(After(Job(), Trained(2), Trained(1.5)).state().chosen(), "nvfp4");
  EXPECT_EQ(After(Job(0.01, "none"), Trained(2), Trained(2.03)).state().chosen(), "bf16");
}

TEST(Trial, LongerLadder_EndsAtTheFirstThatWillDo) {
  v1::JobSpec job = Job();
  *job.mutable_precision()->mutable_fallback(0) = "fp8";
  job.mutable_precision()->add_fallback("bf16");
  Trial far(job, "x", {});
  ASSERT_TRUE(far.Add(Trained(2)).ok());
  ASSERT_TRUE(far.Add(Trained(2.03)).ok());
  EXPECT_EQ(far.next(), "fp8");
  ASSERT_TRUE(far.Add(Trained(2.01)).ok());
  EXPECT_EQ(far.state().chosen(), "fp8");
  Trial near(job, "x", {});
  ASSERT_TRUE(near.Add(Trained(2)).ok());
  ASSERT_TRUE(near.Add(Trained(2.01)).ok());
  EXPECT_EQ(near.state().chosen(), "nvfp4") << "fp8 is not run at all";
  EXPECT_EQ(near.state().runs_size(), 2);
}

TEST(Trial, AsFarAsTheLimit_IsCloseEnough) {
  // Exact in binary: 2.5 / 2 - 1 = 0.25.
  EXPECT_EQ(After(Job(0.25), Trained(2), Trained(2.5)).state().chosen(), "nvfp4");
  EXPECT_EQ(After(Job(0), Trained(2), Trained(2)).state().chosen(), "nvfp4");
  EXPECT_EQ(After(Job(0), Trained(2), Trained(std::nextafter(2.0, 3.0))).state().chosen(), "bf16");
}

TEST(Trial, HeldOutLoss_CountsWhereThereIsOne) {
  const Trial trial = After(Job(), HeldOut(2, 1), HeldOut(2, 9));
  EXPECT_EQ(trial.state().chosen(), "nvfp4");
  EXPECT_EQ(trial.state().runs(1).gap(), 0);
  EXPECT_THAT(trial.state().text(), HasSubstr("held-out"));
  EXPECT_EQ(After(Job(), HeldOut(2), Trained(1)).state().chosen(), "bf16") << "not measured";
}

TEST(Trial, WithoutANumber_IsFartherThanAnyLimit) {
  for (const double loss : {kNan, std::numeric_limits<double>::infinity()}) {
    const Trial trial = After(Job(1), Trained(2), Trained(loss));
    EXPECT_EQ(trial.state().chosen(), "bf16");
    EXPECT_FALSE(trial.state().runs(1).has_gap());
    EXPECT_THAT(trial.state().runs(1).problem(), HasSubstr("no number"));
  }
  v1::PrecisionTrialRun stopped = Trained(1);
  stopped.set_problem("step 7: not finite");
  const Trial trial = After(Job(1), Trained(2), stopped);
  EXPECT_EQ(trial.state().chosen(), "bf16");
  EXPECT_FALSE(trial.state().runs(1).has_gap());
  EXPECT_THAT(trial.state().text(), HasSubstr("nvfp4: step 7: not finite; the job trains in bf16"));
}

TEST(Trial, WithoutAReference_NothingIsChosen) {
  for (const v1::PrecisionTrialRun& run : {v1::PrecisionTrialRun(), Trained(kNan), HeldOut(kNan)}) {
    Trial trial(Job(), "x", {});
    EXPECT_TRUE(absl::IsOutOfRange(trial.Add(run)));
    EXPECT_FALSE(trial.decided());
    EXPECT_EQ(trial.state().runs_size(), 0);
  }
  v1::PrecisionTrialRun stopped = Trained(1);
  stopped.set_problem("step 7: not finite");
  Trial trial(Job(), "x", {});
  EXPECT_THAT(std::string(trial.Add(stopped).message()), HasSubstr("step 7: not finite"));
}

TEST(Trial, UnfinishedOne_GoesOnIfMadeWithTheSame) {
  Trial before(Job(), "x", {});
  EXPECT_EQ(before.state().text(), "trial of 100 steps before the first in bf16, nvfp4");
  ASSERT_TRUE(before.Add(Trained(2)).ok());
  Trial same(Job(), "x", before.state());
  EXPECT_EQ(same.next(), "nvfp4");
  EXPECT_EQ(same.state().SerializeAsString(), before.state().SerializeAsString());
  EXPECT_EQ(Trial(Job(), "y", before.state()).next(), "bf16");
  ASSERT_TRUE(same.Add(Trained(2.001)).ok());
  EXPECT_EQ(same.state().chosen(), "nvfp4");
  v1::PrecisionTrial swapped = same.state();
  swapped.clear_chosen();
  swapped.mutable_runs()->SwapElements(0, 1);
  EXPECT_EQ(Trial(Job(), "x", swapped).next(), "bf16");
}

TEST(Trial, Decision_StandsWhateverItWasMadeWith) {
  const v1::PrecisionTrial chosen = After(Job(), Trained(2), Trained(2)).state();
  Trial trial(Job(0, "none"), "y", chosen);
  EXPECT_TRUE(trial.decided());
  EXPECT_EQ(trial.state().chosen(), "nvfp4");
  EXPECT_TRUE(HasChosen(Job(), chosen));
  v1::JobSpec other = Job();
  other.mutable_precision()->set_recipe("mxfp8");
  EXPECT_FALSE(HasChosen(other, chosen));
  other = Job();
  other.mutable_precision()->clear_trial();
  EXPECT_FALSE(HasChosen(other, chosen));
  EXPECT_FALSE(HasChosen(Job(), {}));
}

}  // namespace
}  // namespace hearth::trainer
