#include "kernels/step_gate/step_gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hearth::kernels {
namespace {

StepInputs Inputs() {
  StepInputs inputs;
  inputs.loss_limit = std::numeric_limits<double>::infinity();
  inputs.grad_norm_limit = std::numeric_limits<double>::infinity();
  inputs.tokens = 1000;
  inputs.max_norm = 1.0;
  inputs.step = 7;
  return inputs;
}

StepState Sums(double loss_sum, double weight_sum, double sum_squares) {
  StepState state;
  state.loss_sum = loss_sum;
  state.weight_sum = weight_sum;
  state.sum_squares = sum_squares;
  return state;
}

StepState Judged(const StepInputs& inputs, StepState state) {
  EXPECT_TRUE(JudgeStep(Exec(), &inputs, &state).ok());
  return state;
}

TEST(JudgeStep, GoodStep_MeansAndClip) {
  const StepInputs inputs = Inputs();
  // Half of the tokens count: the gradient of the mean is twice what was accumulated.
  const StepState state = Judged(inputs, Sums(2000, 500, 4.0));
  EXPECT_EQ(state.loss, 4.0);
  EXPECT_EQ(state.grad_norm, 4.0);
  EXPECT_FLOAT_EQ(state.grad_scale, static_cast<float>(2.0 / (4.0 + 1e-6)));
  EXPECT_EQ(state.verdict, 0);
  EXPECT_EQ(state.skip, 0);
}

TEST(JudgeStep, SmallNormOrNoLimit_DoesNotClip) {
  StepInputs inputs = Inputs();
  EXPECT_EQ(Judged(inputs, Sums(1000, 1000, 0.25)).grad_scale, 1.0F);
  inputs.max_norm = 0;
  EXPECT_EQ(Judged(inputs, Sums(1000, 500, 1e6)).grad_scale, 2.0F);
}

TEST(JudgeStep, LossAboveLimit_IsASpikeAndSticks) {
  StepInputs inputs = Inputs();
  inputs.loss_limit = 3.0;
  StepState state = Judged(inputs, Sums(3001, 1000, 1.0));
  EXPECT_EQ(state.verdict, 1);
  EXPECT_EQ(state.skip, 1);
  // A good step after it is still skipped: the host has not cleared the flag.
  ASSERT_TRUE(BeginStep(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.skip, 1);
  state.loss_sum = 1000;
  state.weight_sum = 1000;
  ASSERT_TRUE(JudgeStep(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.verdict, 0);
  EXPECT_EQ(state.skip, 1);
}

TEST(JudgeStep, NormAboveLimit_IsAGradientSpike) {
  StepInputs inputs = Inputs();
  inputs.grad_norm_limit = 3.0;
  EXPECT_EQ(Judged(inputs, Sums(1000, 1000, 9.0)).verdict, 0) << "a norm of exactly the limit";
  const StepState state = Judged(inputs, Sums(1000, 1000, 9.1));
  EXPECT_EQ(state.verdict, 3);
  EXPECT_EQ(state.skip, 1);
}

TEST(JudgeStep, NotFinite_HasVerdictTwo) {
  const StepInputs inputs = Inputs();
  StepState nan_loss = Sums(std::nan(""), 1000, 1.0);
  StepState infinite_norm = Sums(1000, 1000, std::numeric_limits<double>::infinity());
  StepState no_weight = Sums(0, 0, 1.0);
  StepState counted = Sums(1000, 1000, 1.0);
  counted.nonfinite = 1;
  for (StepState* state : {&nan_loss, &infinite_norm, &no_weight, &counted}) {
    ASSERT_TRUE(JudgeStep(Exec(), &inputs, state).ok());
    EXPECT_EQ(state->verdict, 2);
    EXPECT_EQ(state->skip, 1);
  }
}

TEST(JudgeStep, AppliedStep_LeavesItsNormBehind) {
  StepInputs inputs = Inputs();
  StepState state = Sums(1000, 1000, 4.0);
  ASSERT_TRUE(JudgeStep(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.last_norm, 2.0);
  ASSERT_TRUE(BeginStep(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.last_norm, 2.0);
  inputs.loss_limit = 0.5;
  state.loss_sum = state.weight_sum = 1000;
  state.sum_squares = 9.0;
  ASSERT_TRUE(JudgeStep(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.grad_norm, 3.0);
  EXPECT_EQ(state.last_norm, 2.0) << "a refused step";
}

TEST(JudgeLoss, ClipsByTheNormOfTheStepBefore) {
  StepInputs inputs = Inputs();
  StepState state = Sums(2000, 500, 0);
  ASSERT_TRUE(JudgeLoss(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.loss, 4.0);
  EXPECT_EQ(state.grad_scale, 2.0F) << "no step before: no clip";
  EXPECT_EQ(state.skip, 0);
  inputs.norm_before = 4.0;  // of a checkpoint
  ASSERT_TRUE(JudgeLoss(Exec(), &inputs, &state).ok());
  EXPECT_FLOAT_EQ(state.grad_scale, static_cast<float>(2.0 / (4.0 + 1e-6)));
  state.last_norm = 8.0;
  ASSERT_TRUE(JudgeLoss(Exec(), &inputs, &state).ok());
  EXPECT_FLOAT_EQ(state.grad_scale, static_cast<float>(2.0 / (8.0 + 1e-6)));
  state.last_norm = 0.5;
  ASSERT_TRUE(JudgeLoss(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.grad_scale, 2.0F);
}

TEST(JudgeLoss, SpikeOrNoNumber_Skips) {
  StepInputs inputs = Inputs();
  inputs.loss_limit = 3.0;
  StepState spike = Sums(3001, 1000, 0);
  StepState nan_loss = Sums(std::nan(""), 1000, 0);
  StepState no_weight = Sums(0, 0, 0);
  for (StepState* state : {&spike, &nan_loss, &no_weight}) {
    ASSERT_TRUE(JudgeLoss(Exec(), &inputs, state).ok());
    EXPECT_EQ(state->skip, 1);
    ASSERT_TRUE(JudgePart(Exec(), state).ok());
    EXPECT_EQ(state->begun, 0);
  }
}

TEST(JudgePart, AddsThePart_AndSkipsFromTheFirstBadOneOn) {
  StepState state;
  state.part_squares = 4.0;
  ASSERT_TRUE(JudgePart(Exec(), &state).ok());
  EXPECT_EQ(state.sum_squares, 4.0);
  EXPECT_EQ(state.begun, 1);
  EXPECT_EQ(state.skip, 0);
  state.part_squares = std::numeric_limits<double>::infinity();
  state.part_nonfinite = 2;
  ASSERT_TRUE(JudgePart(Exec(), &state).ok());
  EXPECT_EQ(state.nonfinite, 2);
  EXPECT_EQ(state.skip, 1);
  state.part_squares = 1.0;
  state.part_nonfinite = 0;
  ASSERT_TRUE(JudgePart(Exec(), &state).ok());
  EXPECT_EQ(state.skip, 1);
  EXPECT_EQ(state.begun, 1) << "what was updated stays so";
}

TEST(BeginStep, AnyState_SumsAreZeroAndCountersStay) {
  const StepInputs inputs = Inputs();
  StepState state = Sums(5, 6, 7);
  state.source_sums[0][0] = 11;
  state.source_sums[kSourcesMax - 1][1] = 12;
  state.nonfinite = 8;
  state.begun = 1;
  state.part_squares = 13;
  state.part_nonfinite = 14;
  state.verdict = 2;
  state.grad_scale = 9;
  state.weight_quantizations = 10;
  ASSERT_TRUE(BeginStep(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.loss_sum, 0);
  EXPECT_EQ(state.weight_sum, 0);
  EXPECT_EQ(state.source_sums[0][0], 0);
  EXPECT_EQ(state.source_sums[kSourcesMax - 1][1], 0);
  EXPECT_EQ(state.sum_squares, 0);
  EXPECT_EQ(state.nonfinite, 0);
  EXPECT_EQ(state.begun, 0);
  EXPECT_EQ(state.part_squares, 0);
  EXPECT_EQ(state.part_nonfinite, 0);
  EXPECT_EQ(state.verdict, 0);
  EXPECT_EQ(state.grad_scale, 1.0F);
  EXPECT_EQ(state.step, 7);
  EXPECT_EQ(state.weight_quantizations, 10u);
  EXPECT_EQ(state.skip, 0);
}

TEST(BeginStep, Control_IsTheInputsAndTimesBeginAgain) {
  StepInputs inputs = Inputs();
  inputs.control[0] = 1;
  inputs.control[2] = 5;
  StepState state;
  state.control[1] = 9;
  state.backward_ns = state.reduced_ns = state.ended_ns = 4;
  ASSERT_TRUE(BeginStep(Exec(), &inputs, &state).ok());
  EXPECT_EQ(state.control[0], 1);
  EXPECT_EQ(state.control[1], 0);
  EXPECT_EQ(state.control[2], 5);
  EXPECT_GT(state.started_ns, 0u);
  EXPECT_EQ(state.backward_ns, 0u);
  EXPECT_EQ(state.reduced_ns, 0u);
  EXPECT_EQ(state.ended_ns, 0u);
}

TEST(StampTime, Later_IsNotLess) {
  uint64_t first = 0;
  uint64_t second = 0;
  ASSERT_TRUE(StampTime(Exec(), &first).ok());
  ASSERT_TRUE(StampTime(Exec(), &second).ok());
  EXPECT_GT(first, 0u);
  EXPECT_GE(second, first);
  EXPECT_EQ(StampTime(Exec(), nullptr).code(), absl::StatusCode::kInvalidArgument);
}

TEST(JudgeStep, NullPointer_IsRefused) {
  StepState state;
  EXPECT_EQ(JudgeStep(Exec(), nullptr, &state).code(), absl::StatusCode::kInvalidArgument);
  const StepInputs inputs = Inputs();
  EXPECT_EQ(BeginStep(Exec(), &inputs, nullptr).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(JudgeLoss(Exec(), nullptr, &state).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(JudgePart(Exec(), nullptr).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
