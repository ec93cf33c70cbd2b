#include "kernels/grad_norm/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace hearth::kernels {
namespace {

struct Result {
  double sum = 0.0;
  int64_t nonfinite = 0;
};

Result SumOf(std::vector<float>& a, std::vector<double>& b) {
  const std::vector<TensorView> tensors = {View(a.data(), {static_cast<int64_t>(a.size())}),
                                           View(b.data(), {static_cast<int64_t>(b.size())})};
  Result result;
  const SumSquaresArgs args = {tensors, &result.sum, &result.nonfinite};
  alignas(64) static unsigned char memory[4096];
  Exec exec;
  exec.workspace = {memory, SumSquaresWorkspaceBytes(args)};
  EXPECT_TRUE(SumSquares(exec, args).ok());
  return result;
}

TEST(SumSquares, MixedTensors_AddsAll) {
  std::vector<float> a(5000, 2.0F);
  std::vector<double> b = {3.0, 4.0};
  const Result result = SumOf(a, b);
  EXPECT_EQ(result.sum, 20025.0);
  EXPECT_EQ(result.nonfinite, 0);
}

TEST(SumSquares, NonFinite_IsCountedAndPoisonsTheSum) {
  std::vector<float> a(10000, 1.0F);
  a[0] = std::nanf("");
  a[9999] = -std::numeric_limits<float>::infinity();
  std::vector<double> b = {1e200, 1.0};  // its square overflows, but it is finite itself
  const Result result = SumOf(a, b);
  EXPECT_FALSE(std::isfinite(result.sum));
  EXPECT_EQ(result.nonfinite, 2);
}

TEST(ClipFactor, NormAboveAndBelow_FollowsPyTorch) {
  EXPECT_FLOAT_EQ(ClipFactor(2.0, 1.0), static_cast<float>(1.0 / (2.0 + 1e-6)));
  EXPECT_EQ(ClipFactor(0.5, 1.0), 1.0F);
  EXPECT_EQ(ClipFactor(5.0, 0.0), 1.0F);
  EXPECT_EQ(ClipFactor(std::nan(""), 1.0), 1.0F);
}

}  // namespace
}  // namespace hearth::kernels
