#include "kernels/muon/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/core/formats.h"
#include "tests/support/kernels/bf16_steps.h"

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

// The look ahead is that of the exact new momentum; what is kept of it is rounded to its format.
TEST(MuonTest, MomentumInBlocks_FollowsTheFormula) {
  constexpr auto kCodec = formats::StateCodec::kLinearSigned8;
  constexpr size_t kCount = 700;  // the last block is short
  std::vector<float> momentum(kCount);
  std::vector<float> grad(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    momentum[i] = 3.0F * std::cos(3.0F * static_cast<float>(i));
    grad[i] = std::sin(5.0F * static_cast<float>(i) + 1.0F);
  }
  std::vector<uint8_t> codes(kCount);
  std::vector<float> scales(3);
  formats::EncodeStateBlocks(kCodec, momentum.data(), kCount, codes.data(), scales.data());
  formats::DecodeStateBlocks(kCodec, codes.data(), scales.data(), kCount, momentum.data());
  const std::vector<float> before = grad;
  const MuonMomentumTensor tensor = {View(codes.data(), {static_cast<int64_t>(kCount)}),
                                     View(grad.data(), {static_cast<int64_t>(kCount)}),
                                     {kCodec, scales.data()}};
  MuonMomentumArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  ASSERT_TRUE(MuonMomentum(Exec(), args).ok());
  std::vector<float> after(kCount);
  formats::DecodeStateBlocks(kCodec, codes.data(), scales.data(), kCount, after.data());
  for (size_t i = 0; i < kCount; ++i) {
    const double exact = 0.95 * double{momentum[i]} + double{before[i]};
    EXPECT_NEAR(grad[i], double{before[i]} + 0.95 * exact, 2e-6) << i;
    EXPECT_NEAR(after[i], exact, double{scales[i / 256]} / 254 + 1e-6) << i;
    EXPECT_LE(std::abs(after[i]), scales[i / 256]);
  }
}

// One step of 0.001 on `count` BF16 weights of 1, each its own master.
std::vector<uint16_t> StepOfBf16(int64_t count, uint32_t index, uint64_t first_element) {
  std::vector<uint16_t> p(static_cast<size_t>(count), EncodeBf16(1.0F));
  std::vector<float> o(p.size(), 1.0F);
  std::vector<float> w(p.size());
  MuonUpdateTensor tensor;
  tensor.master = TensorView(p.data(), DType::kBF16, {count});
  tensor.o = View(o.data(), {count});
  tensor.working = View(w.data(), {count});
  tensor.index = index;
  tensor.first_element = first_element;
  MuonUpdateArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  args.lr = 1e-3;  // about a quarter of bf16's step below 1
  args.step = 7;
  args.stochastic_rounding = true;
  EXPECT_TRUE(MuonUpdate(Exec(), args).ok());
  for (size_t i = 0; i < p.size(); ++i) {
    EXPECT_EQ(w[i], DecodeBf16(p[i])) << "the working copy is the weight as it is kept";
  }
  return p;
}

TEST(MuonTest, StochasticRounding_KeepsTheMean_ByTensorAndPlaceAlone) {
  ExpectMeanIsKept(&StepOfBf16);
  // A matrix of a fused tensor may begin anywhere.
  ExpectPlaceAlone(&StepOfBf16, 2001);
}

TEST(MuonTest, WideWeights_AreRoundedAsPackedOnes) {
  std::vector<float> p(3000, 1.0F);
  std::vector<float> o(3000, 1.0F);
  MuonUpdateTensor tensor;
  tensor.master = tensor.working = View(p.data(), {3000});
  tensor.o = View(o.data(), {3000});
  tensor.index = 1;
  MuonUpdateArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  args.lr = 1e-3;
  args.step = 7;
  args.round_working = DType::kBF16;
  args.stochastic_rounding = true;
  ASSERT_TRUE(MuonUpdate(Exec(), args).ok());
  ExpectRoundedAsPacked(p, &StepOfBf16);
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
  // Codes without scales, and codes of another map.
  args.mu = 0.5;
  std::vector<uint8_t> codes(4);
  float scale = 1.0F;
  tensor = {View(codes.data(), {4}), View(x.data(), {4}), {formats::StateCodec::kLinearSigned8}};
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  EXPECT_EQ(MuonMomentum(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
  tensor.blocks = {formats::StateCodec::kDynamicSigned8, &scale};
  EXPECT_EQ(MuonMomentum(Exec(), args).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace hearth::kernels
