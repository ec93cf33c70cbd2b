#include "kernels/muon/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hearth::kernels {
namespace {

TEST(MuonTest, TwoMomenta_FollowMoonlight) {
  std::vector<double> momentum = {0.0, 1.0};
  std::vector<double> grad = {2.0, 4.0};
  const MuonMomentumTensor tensor = {View(momentum.data(), {2}), View(grad.data(), {2})};
  const float scale = 0.5F;
  MuonMomentumArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  args.mu = 0.75;
  args.grad_scale = &scale;
  ASSERT_TRUE(MuonMomentum(Exec(), args).ok());
  EXPECT_EQ(momentum, (std::vector<double>{1.0, 2.75}));
  EXPECT_EQ(grad, (std::vector<double>{1.75, 2.0 + 0.75 * 2.75}));
}

TEST(MuonTest, Update_DecaysByTheRateAlone_AndStepsByTheLongerSide) {
  std::vector<double> p = {2.0};
  std::vector<double> o = {-1.0};
  std::vector<double> w = {0.0};
  MuonUpdateTensor tensor;
  tensor.master = View(p.data(), {1});
  tensor.o = View(o.data(), {1});
  tensor.working = View(w.data(), {1});
  tensor.rate = MuonRate(100, 400);
  tensor.lr_scale = 0.5;
  tensor.weight_decay = 0.1;
  StepInputs inputs;
  inputs.learning_rate = 0.02;
  MuonUpdateArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  args.inputs = &inputs;
  ASSERT_TRUE(MuonUpdate(Exec(), args).ok());
  EXPECT_NEAR(p[0], 2.0 * (1 - 0.01 * 0.1) + 0.01 * 0.2 * 20, 1e-15);
  EXPECT_EQ(w, p);
}

TEST(MuonTest, RateOfAnOrthogonalMatrix_MakesItsRootMeanSquareAFifth) {
  // An [m, n] with orthonormal rows has m ones of n m elements' squares.
  EXPECT_NEAR(MuonRate(16, 64) * std::sqrt(16.0 / (16 * 64)), 0.2, 1e-15);
  EXPECT_EQ(MuonRate(16, 64), MuonRate(64, 16));
}

TEST(MuonTest, BadArguments_AreRefused) {
  std::vector<float> x(4);
  MuonMomentumTensor tensor = {View(x.data(), {3}), View(x.data(), {4})};
  MuonMomentumArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  EXPECT_EQ(MuonMomentum(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
  args.tensors = {};
  args.mu = 1.0;
  EXPECT_EQ(MuonMomentum(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
