#include "common/spec/feasibility/state_formats.h"

#include <string>
#include <vector>

#include "common/spec/plan/gpus.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

std::vector<double> Sums(bool scales) {
  std::vector<double> sums;
  for (const StateFormat& row : StateFormats()) {
    if (!row.built) {
      sums.push_back(scales ? row.with_scales() : row.bytes());
    }
  }
  return sums;
}

TEST(StateFormatsTest, BytesOfAParameter_AreThosePublished) {
  const std::vector<double> plain = {12,     8,      10.5625, 4.5625, 3.5625,
                                     3.0625, 2.0625, 2.8828,  1.8828};
  const std::vector<double> sums = Sums(false);
  ASSERT_EQ(sums.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NEAR(sums[i], plain[i], 5e-5) << i;
  }
}

TEST(StateFormatsTest, ScalesOfBlocks_AreCountedBesideThem) {
  const std::vector<double> sums = Sums(true);
  ASSERT_EQ(sums.size(), 9U);
  EXPECT_NEAR(sums[5], 3.0938, 5e-5);
  EXPECT_NEAR(sums[6], 2.1250, 5e-5);
  EXPECT_NEAR(sums[8], 1.9453, 5e-5);
  EXPECT_EQ(sums[0], 12.0) << "no blocks, no scales";
}

TEST(StateFormatsTest, WhatThisVersionTrains_IsMarked) {
  for (const StateFormat& row : StateFormats()) {
    EXPECT_EQ(row.built, row.name.find("FP32 masters") != std::string_view::npos) << row.name;
  }
}

// Billions of parameters: 0.8 x GB / bytes.
struct LargestCase {
  const char* gpu;
  double billions[3];
};
constexpr LargestCase kLargest[] = {
    {"RTX 3060", {0.80, 3.13, 5.10}},  {"RTX 3090", {1.60, 6.27, 10.2}},
    {"RTX 4080", {1.07, 4.18, 6.80}},  {"RTX 4090", {1.60, 6.27, 10.2}},
    {"RTX 5080", {1.07, 4.18, 6.80}},  {"RTX 5090", {2.13, 8.36, 13.6}},
    {"RTX A6000", {3.20, 12.5, 20.4}}, {"A100 40GB", {2.67, 10.4, 17.0}},
    {"A100 80GB", {5.33, 20.9, 34.0}}, {"H100 SXM", {5.33, 20.9, 34.0}},
    {"H200", {9.40, 36.8, 59.9}},
};

TEST(StateFormatsTest, LargestModels_OfElevenGpusAndThreeTiers) {
  ASSERT_EQ(StateTiers().size(), 3U);
  for (const LargestCase& expected : kLargest) {
    const auto gpu = GpuByName(expected.gpu);
    ASSERT_TRUE(gpu.ok()) << expected.gpu;
    for (size_t tier = 0; tier < 3; ++tier) {
      const double billions =
          1e-9 * LargestParameters((*gpu)->memory_gb, StateTiers()[tier]->bytes());
      EXPECT_NEAR(billions / expected.billions[tier], 1, 0.005) << expected.gpu << " " << tier;
    }
  }
}

}  // namespace
}  // namespace hearth::spec
