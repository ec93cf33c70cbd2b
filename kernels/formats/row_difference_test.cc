#include "kernels/formats/row_difference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kRows = 1000;
constexpr int64_t kCols = 96;

std::vector<float> Normal() {
  std::vector<float> values(kRows * kCols);
  FillNormal({5, RngPurpose::kTest, 0, 0, 1}, 0, 0.0, 1.0, values.data(), kRows * kCols);
  return values;
}

std::vector<uint16_t> Codes(const std::vector<float>& values) {
  std::vector<uint16_t> codes;
  for (const float value : values) {
    codes.push_back(EncodeBf16(value));
  }
  return codes;
}

TEST(LargestRowDifference, Rounding_IsBelowOnePercentAndOneWrongTileIsNot) {
  const std::vector<float> want = Normal();
  std::vector<float> got = want;
  for (float& value : got) {
    value *= 1.002F;
  }
  EXPECT_EQ(LargestRowDifference(Codes(want), Codes(want), kCols), 0);
  EXPECT_GT(LargestRowDifference(Codes(got), Codes(want), kCols), 0);
  EXPECT_LT(LargestRowDifference(Codes(got), Codes(want), kCols), 0.01);
  for (int64_t col = 0; col < 8; ++col) {
    got[500 * kCols + col] = 0;  // a head of one row
  }
  EXPECT_GT(LargestRowDifference(Codes(got), Codes(want), kCols), 0.05);
}

TEST(LargestRowDifference, RowOfNothing_CountsAgainstTheOthers) {
  std::vector<float> want = Normal();
  std::fill_n(want.begin(), kCols, 0.0F);
  std::vector<float> got = want;
  std::fill_n(got.begin(), kCols, 1e-4F);
  EXPECT_LT(LargestRowDifference(Codes(got), Codes(want), kCols), 0.001);
  std::fill_n(got.begin(), kCols, 1.0F);
  EXPECT_GT(LargestRowDifference(Codes(got), Codes(want), kCols), 0.5);
}

TEST(LargestRowDifference, NotFinite_IsInfinite) {
  const std::vector<float> want = Normal();
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> got = want;
    got[77] = bad;
    EXPECT_TRUE(std::isinf(LargestRowDifference(Codes(got), Codes(want), kCols)));
  }
}

}  // namespace
}  // namespace hearth::kernels
