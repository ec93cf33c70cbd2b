#include "kernels/dropout/dropout.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth::kernels {
namespace {

DropoutArgs ArgsOf(std::vector<float>& x, std::vector<float>& y) {
  DropoutArgs args;
  args.x = View(x.data(), {static_cast<int64_t>(x.size())});
  args.y = View(y.data(), {static_cast<int64_t>(y.size())});
  args.p = 0.25;
  args.key = {1, RngPurpose::kDropout, 2, 3, 4};
  return args;
}

TEST(DropoutForward, LargeInput_KeepsTheShareAndScales) {
  std::vector<float> x(100000, 1.5F);
  std::vector<float> y(x.size());
  ASSERT_TRUE(DropoutForward(Exec(), ArgsOf(x, y)).ok());
  int64_t kept = 0;
  for (float value : y) {
    ASSERT_TRUE(value == 0.0F || value == 2.0F) << value;
    kept += value != 0.0F ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / 1e5, 0.75, 0.005);
}

// The contract names RngUniform; the implementation computes many blocks at once.
TEST(DropoutForward, Mask_IsRngUniformOfTheElement) {
  std::vector<float> x(1003, 1.0F);
  std::vector<float> y(1003);
  DropoutArgs args = ArgsOf(x, y);
  args.first_element = 8;
  ASSERT_TRUE(DropoutForward(Exec(), args).ok());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i] != 0.0F, RngUniform(args.key, 8 + i) >= 0.25F) << i;
  }
}

// Two ranks that hold halves of a tensor get the halves of the whole mask.
TEST(DropoutForward, SplitTensor_SameMask) {
  std::vector<float> x(1000, 1.0F);
  std::vector<float> whole(1000);
  ASSERT_TRUE(DropoutForward(Exec(), ArgsOf(x, whole)).ok());
  std::vector<float> half_x(500, 1.0F);
  std::vector<float> half(500);
  DropoutArgs args = ArgsOf(half_x, half);
  args.first_element = 500;
  ASSERT_TRUE(DropoutForward(Exec(), args).ok());
  EXPECT_EQ(half, std::vector<float>(whole.begin() + 500, whole.end()));
}

// A replayed launch reads where the run stands from memory instead of from its arguments.
TEST(DropoutForward, Position_StandsForTheKeysStepAndMicroBatch) {
  std::vector<float> x(1000, 1.0F);
  std::vector<float> expected(1000);
  DropoutArgs args = ArgsOf(x, expected);
  args.key.step = 70;
  args.key.micro_batch = 9;
  ASSERT_TRUE(DropoutForward(Exec(), args).ok());
  StepInputs position;
  position.step = 70;
  position.micro_batch = 9;
  std::vector<float> y(1000);
  args = ArgsOf(x, y);
  args.position = &position;
  ASSERT_TRUE(DropoutForward(Exec(), args).ok());
  EXPECT_EQ(y, expected);
  args.position = nullptr;
  ASSERT_TRUE(DropoutForward(Exec(), args).ok());
  EXPECT_NE(y, expected);
}

TEST(DropoutForward, Bf16OnACpu_IsUnimplemented) {
  std::vector<uint16_t> x(8);
  DropoutArgs args;
  args.x = args.y = TensorView(x.data(), DType::kBF16, {8});
  EXPECT_EQ(DropoutForward(Exec(), args).code(), absl::StatusCode::kUnimplemented);
}

TEST(DropoutBackward, InPlace_SameMaskAsForward) {
  std::vector<float> x(1000, 1.0F);
  std::vector<float> y(1000);
  ASSERT_TRUE(DropoutForward(Exec(), ArgsOf(x, y)).ok());
  ASSERT_TRUE(DropoutBackward(Exec(), ArgsOf(x, x)).ok());
  EXPECT_EQ(x, y);
}

TEST(DropoutForward, BadArguments_AreRefused) {
  std::vector<float> x(4);
  DropoutArgs args = ArgsOf(x, x);
  args.p = 1.0;
  EXPECT_EQ(DropoutForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
  args.p = 0.5;
  args.first_element = 2;
  EXPECT_EQ(DropoutForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
