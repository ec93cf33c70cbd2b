#include "kernels/qk_norm_rope/qk_norm_rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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
  config.scaling = RopeScaling::kLlama3;
  config.factor = 8.0;
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
