#include "kernels/qk_norm_rope/qk_norm_rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

TEST(RopeInverseFrequencies, Plain_IsThePowerLaw) {
  std::vector<double> freq(4);
  RopeInverseFrequencies(RopeConfig(), 8, freq.data());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(freq[i], std::pow(10000.0, -static_cast<double>(i) / 4.0), 1e-15);
  }
}

// Llama 3.1's configuration: high frequencies unchanged, low ones divided by 8, a ramp between.
TEST(RopeInverseFrequencies, Llama3_KeepsHighDividesLow) {
  RopeConfig config;
  config.theta = 500000.0;
  std::vector<double> plain(64);
  RopeInverseFrequencies(config, 128, plain.data());
  config.scaling.type = RopeScalingType::kLlama3;
  config.scaling.factor = 8.0;
  std::vector<double> scaled(64);
  RopeInverseFrequencies(config, 128, scaled.data());
  EXPECT_EQ(scaled[0], plain[0]);
  EXPECT_NEAR(scaled[63], plain[63] / 8.0, 1e-18);
  int between = 0;
  for (size_t i = 0; i < 64; ++i) {
    ASSERT_LE(scaled[i], plain[i] * (1 + 1e-12));
    ASSERT_GE(scaled[i], plain[i] / 8.0 * (1 - 1e-12));
    between += scaled[i] < plain[i] * 0.99 && scaled[i] > plain[i] / 7.9 ? 1 : 0;
  }
  EXPECT_GT(between, 3);
}

// rotate_half: with D = 2 a head is a point of the plane, turned by its position in radians.
TEST(QkNormRopeForward, TwoDimensions_TurnsByPositionAndLeavesValues) {
  std::vector<double> qkv = {1.0, 0.0, 0.0, 1.0, 5.0, 6.0};
  std::vector<double> out(6);
  std::vector<int32_t> positions = {3};
  QkNormRopeForwardArgs args;
  args.dims = {1, 1, 2};
  args.qkv = View(qkv.data(), {1, 6});
  args.positions = View(positions.data(), {1});
  args.out = View(out.data(), {1, 6});
  alignas(64) unsigned char memory[256];
  Exec exec;
  exec.workspace = {memory, sizeof(memory)};
  ASSERT_LE(QkNormRopeForwardWorkspaceBytes(args), sizeof(memory));
  ASSERT_TRUE(QkNormRopeForward(exec, args).ok());
  const std::vector<double> expected = {std::cos(3.0), std::sin(3.0), -std::sin(3.0),
                                        std::cos(3.0), 5.0,           6.0};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(out[i], expected[i], 1e-14);
  }
  args.out = args.qkv;
  ASSERT_TRUE(QkNormRopeForward(exec, args).ok());
  EXPECT_EQ(qkv, out);
}

// One output by two ways: plain, and quantised alone.
TEST(QkNormRopeBackward, QuantisedAlone_SameBitsAsOfThePlainOutput) {
  constexpr int64_t kRows = 70;
  constexpr int64_t kDim = 4;
  constexpr int64_t kWidth = 4 * kDim;
  std::vector<float> qkv(kRows * kWidth);
  std::vector<float> d_out(qkv.size());
  FillNormal({1, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 1.0, qkv.data(), kRows * kWidth);
  FillNormal({1, RngPurpose::kTest, 0, 0, 1}, 0, 0.0, 1.0, d_out.data(), kRows * kWidth);
  std::vector<int32_t> positions(kRows);
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i] = static_cast<int32_t>(i % 33);
  }
  std::vector<float> weight(kDim, 1.25F);
  std::vector<float> rstd(kRows * 3, 0.75F);
  std::vector<float> d_weight(2 * kDim);
  std::vector<float> plain(qkv.size());
  QkNormRopeBackwardArgs args;
  args.dims = {2, 1, kDim};
  args.d_out = View(d_out.data(), {kRows, kWidth});
  args.qkv = View(qkv.data(), {kRows, kWidth});
  args.positions = View(positions.data(), {kRows});
  args.q_weight = args.k_weight = View(weight.data(), {kDim});
  args.rstd = View(rstd.data(), {kRows, 3});
  args.d_q_weight = View(d_weight.data(), {kDim});
  args.d_k_weight = View(d_weight.data() + kDim, {kDim});
  args.d_qkv = View(plain.data(), {kRows, kWidth});
  args.round_d_qkv = DType::kBF16;
  alignas(64) static unsigned char memory[16384];
  Exec exec;
  exec.workspace = {memory, sizeof(memory)};
  ASSERT_TRUE(QkNormRopeBackward(exec, args).ok());
  const std::vector<float> d_weight_plain = d_weight;

  std::fill(d_weight.begin(), d_weight.end(), 0.0F);
  std::vector<uint8_t> rows(plain.size());
  std::vector<uint8_t> columns(plain.size());
  const float scale = 1000.0F;
  float amax = 0.0F;
  args.d_qkv = TensorView();
  args.d_qkv_quant = {DType::kE5M2, rows.data(), columns.data(), &scale, &amax};
  ASSERT_LE(QkNormRopeBackwardWorkspaceBytes(args), sizeof(memory));
  ASSERT_TRUE(QkNormRopeBackward(exec, args).ok());
  EXPECT_EQ(d_weight, d_weight_plain);
  float largest = 0.0F;
  for (size_t i = 0; i < plain.size(); ++i) {
    largest = std::max(largest, std::fabs(plain[i]));
    ASSERT_EQ(rows[i], EncodeE5m2(plain[i] * scale));
    ASSERT_EQ(columns[i % kWidth * kRows + i / kWidth], rows[i]);
  }
  EXPECT_EQ(amax, largest);
}

TEST(QkNormRopeBackward, WritesBlocks_OnAGpuOfHeadsThatFillATile) {
  Exec gpu;
  gpu.device = Device::kCuda;
  QkNormRopeBackwardArgs args;
  for (const auto& [dim, fits] :
       {std::pair(8, false), {16, true}, {48, false}, {64, true}, {128, true}, {256, false}}) {
    args.dims.head_dim = dim;
    EXPECT_EQ(WritesBlocks(gpu, args), fits) << dim;
    EXPECT_TRUE(WritesBlocks(Exec(), args)) << dim;
  }
}

TEST(QkNormRopeForward, NegativePosition_IsOutOfRange) {
  std::vector<double> qkv(6);
  std::vector<int32_t> positions = {-1};
  QkNormRopeForwardArgs args;
  args.dims = {1, 1, 2};
  args.qkv = View(qkv.data(), {1, 6});
  args.positions = View(positions.data(), {1});
  args.out = args.qkv;
  EXPECT_EQ(QkNormRopeForward(Exec(), args).code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace hearth::kernels
