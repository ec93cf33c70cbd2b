#include "kernels/adamw/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/core/formats.h"
#include "tests/support/kernels/bf16_steps.h"

namespace hearth::kernels {
namespace {

template <typename T>
AdamWTensor TensorOf(std::vector<T>& p, std::vector<T>& m, std::vector<T>& v, std::vector<T>& g) {
  const int64_t n = static_cast<int64_t>(p.size());
  AdamWTensor tensor;
  tensor.master = View(p.data(), {n});
  tensor.m = View(m.data(), {n});
  tensor.v = View(v.data(), {n});
  tensor.grad = View(g.data(), {n});
  return tensor;
}

// A step of one tensor; `args` without tensors.
absl::Status Step(const AdamWTensor& tensor, AdamWArgs args) {
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return AdamWStep(Exec(), args);
}

// torch.optim.AdamW's formula written out for two steps of one scalar.
TEST(AdamWStep, TwoSteps_FollowPyTorch) {
  std::vector<double> p = {2.0}, m = {0.0}, v = {0.0}, g = {0.5};
  AdamWTensor tensor = TensorOf(p, m, v, g);
  tensor.weight_decay = 0.1;
  AdamWArgs args;
  args.lr = 0.01;
  args.beta1 = 0.9;
  args.beta2 = 0.99;
  args.eps = 1e-8;
  ASSERT_TRUE(Step(tensor, args).ok());
  // m = 0.05, v = 0.0025; corrected 0.5 and 0.25: the step is lr * 0.5 / (0.5 + eps).
  EXPECT_NEAR(p[0], 2.0 * (1 - 0.001) - 0.01 * 0.5 / (0.5 + 1e-8), 1e-14);
  const double after_one = p[0];
  g[0] = -1.0;
  args.step = 2;
  ASSERT_TRUE(Step(tensor, args).ok());
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
  args.lr = 1.0;
  args.skip = &skip;
  ASSERT_TRUE(Step(tensor, args).ok());
  EXPECT_EQ(p, (std::vector<double>{1.0, 2.0}));
  EXPECT_EQ(m, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(v, (std::vector<double>{0.3, 0.4}));
}

TEST(AdamWStep, RoundWorking_MasterKeepsItsBits) {
  std::vector<float> p = {1.0F}, m = {0.0F}, v = {0.0F}, g = {1.0F}, w = {0.0F};
  AdamWTensor tensor = TensorOf(p, m, v, g);
  tensor.working = View(w.data(), {1});
  AdamWArgs args;
  args.lr = 1e-4;
  args.round_working = DType::kBF16;
  ASSERT_TRUE(Step(tensor, args).ok());
  EXPECT_NEAR(p[0], 1.0F - 1e-4F, 1e-7);
  EXPECT_EQ(w[0], 1.0F);  // the step is below bf16's resolution at 1
}

TEST(AdamWStep, Inputs_ReplaceRateAndCorrections) {
  std::vector<double> p = {2.0}, m = {0.0}, v = {0.0}, g = {0.5};
  const AdamWTensor tensor = TensorOf(p, m, v, g);
  StepInputs inputs;
  inputs.learning_rate = 0.25;
  inputs.optimizer[kBiasCorrection1] = 0.1;
  inputs.optimizer[kBiasCorrection2] = 0.05;
  inputs.step = 3;
  AdamWArgs args;
  args.lr = 100.0;
  args.step = 0;  // not looked at
  args.inputs = &inputs;
  ASSERT_TRUE(Step(tensor, args).ok());
  // m = 0.05 and v = 0.0125 (beta2 0.95), corrected to 0.5 and 0.25.
  EXPECT_NEAR(p[0], 2.0 - 0.25 * 0.5 / (0.5 + 1e-8), 1e-14);
}

// One f32 gradient step on `count` equal bf16 masters.
std::vector<uint16_t> StepOfBf16(int64_t count, uint32_t index, uint64_t first_element) {
  std::vector<uint16_t> p(static_cast<size_t>(count), EncodeBf16(1.0F));
  std::vector<uint16_t> m(p.size()), v(p.size());
  std::vector<float> g(p.size(), 1.0F);
  AdamWTensor tensor;
  tensor.master = TensorView(p.data(), DType::kBF16, {count});
  tensor.m = TensorView(m.data(), DType::kBF16, {count});
  tensor.v = TensorView(v.data(), DType::kBF16, {count});
  tensor.grad = View(g.data(), {count});
  tensor.index = index;
  tensor.first_element = first_element;
  AdamWArgs args;
  args.lr = 1e-3;  // about a quarter of bf16's step below 1
  args.stochastic_rounding = true;
  EXPECT_TRUE(Step(tensor, args).ok());
  return p;
}

TEST(AdamWStep, StochasticRounding_KeepsTheMean_ByTensorAndPlaceAlone) {
  ExpectMeanIsKept(&StepOfBf16);
  ExpectPlaceAlone(&StepOfBf16, 2000);
}

// One step of a tensor whose moments are in blocks, against the formula in double on the decoded
// moments; and the moments it leaves.
TEST(AdamWStep, MomentsInBlocks_FollowTheFormula) {
  using formats::StateCodec;
  constexpr int64_t kCount = 700;  // the last block is short
  const std::pair<StateCodec, StateCodec> pairs[] = {
      {StateCodec::kDynamicSigned8, StateCodec::kDynamicUnsigned8},
      {StateCodec::kDynamicSigned4, StateCodec::kLinearUnsigned4}};
  for (const auto& [m_codec, v_codec] : pairs) {
    const int bits = formats::RowOf(m_codec).bits;
    std::vector<float> p(kCount), m(kCount), v(kCount), g(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const auto x = static_cast<float>(i);
      p[i] = std::sin(x);
      m[i] = 0.1F * std::cos(3 * x);
      v[i] = 0.01F + 0.02F * std::abs(std::sin(2 * x));
      g[i] = 0.3F * std::sin(5 * x + 1);
    }
    std::vector<uint8_t> m_codes(kCount * bits / 8), v_codes(m_codes.size());
    std::vector<float> m_scales(8), v_scales(8);
    formats::EncodeStateBlocks(m_codec, m.data(), kCount, m_codes.data(), m_scales.data());
    formats::EncodeStateBlocks(v_codec, v.data(), kCount, v_codes.data(), v_scales.data());
    formats::DecodeStateBlocks(m_codec, m_codes.data(), m_scales.data(), kCount, m.data());
    formats::DecodeStateBlocks(v_codec, v_codes.data(), v_scales.data(), kCount, v.data());
    const std::vector<float> before = p;
    AdamWTensor tensor;
    tensor.master = View(p.data(), {kCount});
    tensor.m = View(m_codes.data(), {static_cast<int64_t>(m_codes.size())});
    tensor.v = View(v_codes.data(), {static_cast<int64_t>(v_codes.size())});
    tensor.grad = View(g.data(), {kCount});
    tensor.m_blocks = {m_codec, m_scales.data()};
    tensor.v_blocks = {v_codec, v_scales.data()};
    AdamWArgs args;
    args.lr = 0.01;
    args.step = 3;
    ASSERT_TRUE(Step(tensor, args).ok());
    std::vector<float> m_after(kCount), v_after(kCount);
    formats::DecodeStateBlocks(m_codec, m_codes.data(), m_scales.data(), kCount, m_after.data());
    formats::DecodeStateBlocks(v_codec, v_codes.data(), v_scales.data(), kCount, v_after.data());
    for (size_t i = 0; i < kCount; ++i) {
      const double m1 = 0.9 * double{m[i]} + 0.1 * double{g[i]};
      const double v1 = 0.95 * double{v[i]} + 0.05 * double{g[i]} * double{g[i]};
      const double step =
          0.01 / (1 - std::pow(0.9, 3)) * m1 / (std::sqrt(v1 / (1 - std::pow(0.95, 3))) + 1e-8);
      EXPECT_NEAR(p[i], double{before[i]} - step, 1e-6) << bits << " bits, element " << i;
      // Half of the widest gap of each map, of a largest value below 0.2 and 0.1.
      EXPECT_NEAR(m_after[i], m1, bits == 8 ? 0.0015 : 0.024) << i;
      EXPECT_NEAR(v_after[i], v1, bits == 8 ? 0.0004 : 0.0065) << i;
    }
    // Codes without scales, and a pair that no row has.
    tensor.m_blocks.scales = nullptr;
    EXPECT_EQ(Step(tensor, args).code(), absl::StatusCode::kInvalidArgument);
    tensor.m_blocks = {v_codec, m_scales.data()};
    EXPECT_EQ(Step(tensor, args).code(), absl::StatusCode::kUnimplemented);
  }
}

TEST(AdamWStep, WideWeights_AreRoundedAsPackedOnes) {
  std::vector<float> p(3000, 1.0F), m(3000), v(3000), g(3000, 1.0F);
  AdamWTensor tensor;
  tensor.master = tensor.working = View(p.data(), {3000});
  tensor.m = View(m.data(), {3000});
  tensor.v = View(v.data(), {3000});
  tensor.grad = View(g.data(), {3000});
  tensor.index = 1;
  AdamWArgs args;
  args.lr = 1e-3;
  args.round_working = DType::kBF16;
  args.stochastic_rounding = true;
  ASSERT_TRUE(Step(tensor, args).ok());
  ExpectRoundedAsPacked(p, &StepOfBf16);
}

TEST(AdamWStep, Amax_IsRaisedToTheLargestWorkingValue) {
  std::vector<float> p(5000, 0.5F), m(5000), v(5000), g(5000), w(5000);
  p[4321] = -3.0F;
  AdamWTensor tensor = TensorOf(p, m, v, g);
  tensor.working = View(w.data(), {5000});
  float amax = 1.0F;
  tensor.amax = &amax;
  AdamWArgs args;
  ASSERT_TRUE(Step(tensor, args).ok());
  EXPECT_EQ(amax, 3.0F);
  p[7] = std::nanf("");
  ASSERT_TRUE(Step(tensor, args).ok());
  EXPECT_TRUE(std::isnan(amax));
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
