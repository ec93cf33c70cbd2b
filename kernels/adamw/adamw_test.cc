#include "kernels/adamw/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hearth::kernels {
namespace {

AdamWTensor TensorOf(std::vector<double>& p,
                     std::vector<double>& m,
                     std::vector<double>& v,
                     std::vector<double>& g) {
  const int64_t n = static_cast<int64_t>(p.size());
  AdamWTensor tensor;
  tensor.master = View(p.data(), {n});
  tensor.m = View(m.data(), {n});
  tensor.v = View(v.data(), {n});
  tensor.grad = View(g.data(), {n});
  return tensor;
}

// torch.optim.AdamW's formula written out for two steps of one scalar.
TEST(AdamWStep, TwoSteps_FollowPyTorch) {
  std::vector<double> p = {2.0}, m = {0.0}, v = {0.0}, g = {0.5};
  AdamWTensor tensor = TensorOf(p, m, v, g);
  tensor.weight_decay = 0.1;
  AdamWArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  args.lr = 0.01;
  args.beta1 = 0.9;
  args.beta2 = 0.99;
  args.eps = 1e-8;
  ASSERT_TRUE(AdamWStep(Exec(), args).ok());
  // m = 0.05, v = 0.0025; corrected 0.5 and 0.25: the step is lr * 0.5 / (0.5 + eps).
  EXPECT_NEAR(p[0], 2.0 * (1 - 0.001) - 0.01 * 0.5 / (0.5 + 1e-8), 1e-14);
  const double after_one = p[0];
  g[0] = -1.0;
  args.step = 2;
  ASSERT_TRUE(AdamWStep(Exec(), args).ok());
  const double m2 = 0.9 * 0.05 - 0.1;
  const double v2 = 0.99 * 0.0025 + 0.01;
  const double denominator = std::sqrt(v2 / (1 - 0.99 * 0.99)) + 1e-8;
  EXPECT_NEAR(p[0], after_one * 0.999 - 0.01 * (m2 / (1 - 0.81)) / denominator, 1e-14);
}

TEST(AdamWStep, SkipSet_WritesNothing) {
  std::vector<double> p = {1.0, 2.0}, m = {0.1, 0.2}, v = {0.3, 0.4}, g = {5.0, 6.0};
  const AdamWTensor tensor = TensorOf(p, m, v, g);
  const int32_t skip = 1;
  AdamWArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  args.lr = 1.0;
  args.skip = &skip;
  ASSERT_TRUE(AdamWStep(Exec(), args).ok());
  EXPECT_EQ(p, (std::vector<double>{1.0, 2.0}));
  EXPECT_EQ(m, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(v, (std::vector<double>{0.3, 0.4}));
}

TEST(AdamWStep, RoundWorking_MasterKeepsItsBits) {
  std::vector<float> p = {1.0F}, m = {0.0F}, v = {0.0F}, g = {1.0F}, w = {0.0F};
  AdamWTensor tensor;
  tensor.master = View(p.data(), {1});
  tensor.m = View(m.data(), {1});
  tensor.v = View(v.data(), {1});
  tensor.grad = View(g.data(), {1});
  tensor.working = View(w.data(), {1});
  AdamWArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  args.lr = 1e-4;
  args.round_working = DType::kBF16;
  ASSERT_TRUE(AdamWStep(Exec(), args).ok());
  EXPECT_NEAR(p[0], 1.0F - 1e-4F, 1e-7);
  EXPECT_EQ(w[0], 1.0F);  // the step is below bf16's resolution at 1
}

TEST(AdamWStep, BadArguments_AreRefused) {
  AdamWArgs args;
  args.step = 0;
  EXPECT_EQ(AdamWStep(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
  args.step = 1;
  args.beta1 = 1.0;
  EXPECT_EQ(AdamWStep(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
