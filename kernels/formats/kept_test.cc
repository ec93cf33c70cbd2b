#include "kernels/formats/kept.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kCount = 1024;
constexpr uint64_t kSeed = 7;

std::vector<float> Normal(double spread) {
  std::vector<float> x(kCount);
  for (size_t i = 0; i < x.size(); ++i) {
    // Twelve uniform numbers less six.
    double sum = -6;
    for (uint64_t n = 0; n < 12; ++n) {
      sum += RngWord({kSeed, RngPurpose::kTest, 0, 0, 0}, i * 12 + n) / 4294967296.0;
    }
    x[i] = static_cast<float>(spread * sum);
  }
  return x;
}

std::vector<float> ThereAndBack(const std::vector<float>& x) {
  std::vector<uint8_t> memory(static_cast<size_t>(KeptBytes(1, kCount)));
  const KeptInput kept = KeptAt(memory.data(), 1, kCount);
  KeepSpan(x.data(), kCount, 0, kept);
  std::vector<float> out(x.size());
  // In two pieces, the second first.
  LoadKeptSpan(kept, kCount / 2, kCount / 2, out.data() + kCount / 2);
  LoadKeptSpan(kept, 0, kCount / 2, out.data());
  return out;
}

TEST(KeptInput, EveryElement_IsWithinTheErrorOfTheFormat) {
  for (const double spread : {1e-30, 1e-3, 1.0, 1e4, 1e30}) {
    const std::vector<float> x = Normal(spread);
    const std::vector<float> y = ThereAndBack(x);
    for (size_t block = 0; block < x.size(); block += kKeptBlock) {
      double largest = 0;
      for (size_t i = block; i < block + kKeptBlock; ++i) {
        largest = std::max(largest, std::fabs(double{x[i]}));
      }
      for (size_t i = block; i < block + kKeptBlock; ++i) {
        const double bound = std::max(std::fabs(double{x[i]}) / 16, largest / 131072);
        ASSERT_LE(std::fabs(double{x[i]} - double{y[i]}), bound) << "seed " << kSeed << " at " << i;
      }
    }
  }
}

TEST(KeptInput, ValuesOfTheFormat_ComeBackAsTheyWere) {
  std::vector<float> x(kCount);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = DecodeE4m3(static_cast<uint8_t>(i % 0x7F)) * (i % 2 == 0 ? 4.0F : -4.0F);
  }
  // Each block's largest is the format's, so that its scale is 4.
  for (size_t block = 0; block < x.size(); block += kKeptBlock) {
    x[block] = 4 * 448.0F;
  }
  EXPECT_EQ(ThereAndBack(x), x);
}

TEST(KeptInput, ZerosStayZero) {
  const std::vector<float> zeros(kCount, 0.0F);
  EXPECT_EQ(ThereAndBack(zeros), zeros);
}

TEST(KeptInput, LargestAndLeastValues_ComeBackAsTheHeaderSays) {
  std::vector<float> x(kCount, -0.0F);
  x[0] = 0x1.EEp127F;  // 247 * 2^120
  x[32] = -0x1.F0p127F;
  x[64] = 0x1p-136F;
  x[65] = 0x1p-137F;  // half of the least value: to even
  const std::vector<float> y = ThereAndBack(x);
  EXPECT_EQ(y[0], 0x1.E0p127F);
  EXPECT_EQ(y[32], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(y[64], 0x1p-136F);
  EXPECT_EQ(y[65], 0.0F);
  EXPECT_TRUE(std::signbit(y[1]) && y[1] == 0.0F);
}

// Nothing that went wrong forward may look sound backward.
TEST(KeptInput, BlockWithoutFiniteMaximum_IsNan) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = Normal(1.0);
    x[40] = bad;
    const std::vector<float> y = ThereAndBack(x);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::isnan(y[i]), i / kKeptBlock == 1) << i;
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
