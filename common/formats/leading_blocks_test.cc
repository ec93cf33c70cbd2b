#include "common/formats/leading_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::formats {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Values {
  float at[kLeadingBlock] = {};
};

Values Decoded(const LeadingBlock& block, float unit) {
  Values values;
  for (int i = 0; i < kLeadingBlock; ++i) {
    values.at[i] = LeadingCode(block.codes, i) * LeadingStep(block.scale, unit);
  }
  return values;
}

double SquareError(const Values& a, const Values& b) {
  double sum = 0;
  for (int i = 0; i < kLeadingBlock; ++i) {
    sum += (double{a.at[i]} - b.at[i]) * (double{a.at[i]} - b.at[i]);
  }
  return sum;
}

TEST(LeadingBlocksTest, Multiples_OfAStep_AreExact) {
  Values x;
  for (int i = 0; i < kLeadingBlock; ++i) {
    x.at[i] = 0.25F * static_cast<float>(i - 8);  // -2 has the code -8
  }
  const float unit = LeadingUnit(2.0F);
  const LeadingBlock block = EncodeLeadingBlock(x.at, unit);
  for (int i = 0; i < kLeadingBlock; ++i) {
    EXPECT_EQ(LeadingCode(block.codes, i), static_cast<float>(i - 8)) << i;
    EXPECT_NEAR(Decoded(block, unit).at[i], x.at[i], 1e-6) << i;
  }
  // The other way round the scale has the other sign.
  for (float& value : x.at) {
    value = -value;
  }
  const LeadingBlock turned = EncodeLeadingBlock(x.at, unit);
  EXPECT_EQ(turned.codes, block.codes);
  EXPECT_EQ(turned.scale ^ block.scale, 0x80);
}

// The scale is one of four, and the best of them.
TEST(LeadingBlocksTest, Scale_HasTheLeastSquareErrorOfFour) {
  constexpr float kShares[] = {1.0F, 8.0F / 7.4F, 8.0F / 8.6F, 8.0F / 9.4F};
  int chosen[4] = {};
  uint32_t word = 1;
  for (int seed = 0; seed < 5000; ++seed) {
    Values x;
    float largest = 0.0F;
    for (int i = 0; i < kLeadingBlock; ++i) {
      for (int n = 0; n < 4; ++n) {  // near to normal
        word = word * 1664525U + 1013904223U;
        x.at[i] += static_cast<float>(word) * 0x1p-33F - 0.25F;
      }
      largest = std::abs(x.at[i]) > std::abs(largest) ? x.at[i] : largest;
    }
    const float unit = 1.0F / 448.0F;
    const LeadingBlock best = EncodeLeadingBlock(x.at, unit);
    const double error = SquareError(Decoded(best, unit), x);
    for (int k = 0; k < 4; ++k) {
      LeadingBlock other;
      other.scale = EncodeE4m3(-largest / unit * kShares[k]);
      chosen[k] += other.scale == best.scale ? 1 : 0;
      TryLeadingScale(x.at, unit, other);
      EXPECT_LE(error, SquareError(Decoded(other, unit), x) * 1.0001) << seed << " " << k;
    }
  }
  for (const int count : chosen) {  // the last one of a thousand blocks
    EXPECT_GT(count, 0);
  }
}

TEST(LeadingBlocksTest, Zeros_AreZeroBytes_AndZeroBytesZeros) {
  const Values zeros;
  for (const float unit : {LeadingUnit(0.0F), LeadingUnit(5.0F)}) {
    const LeadingBlock block = EncodeLeadingBlock(zeros.at, unit);
    EXPECT_EQ(block.codes, 0U);
    EXPECT_EQ(block.scale, 0);
  }
  for (const float value : Decoded(LeadingBlock(), 0.0F).at) {
    EXPECT_EQ(value, 0.0F);
  }
}

// Far below the matrix's largest, and where 1 / step would overflow.
TEST(LeadingBlocksTest, SmallBlocks_BecomeZeros) {
  Values x;
  std::fill(std::begin(x.at), std::end(x.at), 1e-6F);
  for (const float value : Decoded(EncodeLeadingBlock(x.at, LeadingUnit(1.0F)), 1.0F).at) {
    EXPECT_EQ(value, 0.0F);
  }
  std::fill(std::begin(x.at), std::end(x.at), 1e-40F);
  const float least = LeadingUnit(1e-40F);
  for (const float value : Decoded(EncodeLeadingBlock(x.at, least), least).at) {
    EXPECT_TRUE(std::isfinite(value));
    EXPECT_NEAR(value, 0.0F, 2e-40F);
  }
}

// tests/numerics/low_bit_vectors.py wrote these: the study of docs/low-bit-limits.md rounds as the
// engine does.
TEST(LeadingBlocksTest, RecordedBlocks_AreThoseOfTheStudy) {
  // Read once, before any thread: ctest names the source folder.
  const char* source = std::getenv("HEARTH_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::ifstream file(std::string(source == nullptr ? "." : source) +
                     "/tests/numerics/data/leading_blocks.txt");
  size_t count = 0;
  file >> count >> std::hex;
  ASSERT_GT(count, 0U);
  const auto read = [&file] {
    uint32_t value = 0;
    file >> value;
    return value;
  };
  const float recorded_unit = BitsFloat(read());
  std::vector<float> x(count);
  float largest = 0.0F;
  for (float& value : x) {
    value = BitsFloat(read());
    largest = std::max(largest, std::abs(value));
  }
  const float unit = LeadingUnit(largest);
  EXPECT_EQ(unit, recorded_unit);
  std::vector<LeadingBlock> blocks;
  for (size_t first = 0; first < count; first += kLeadingBlock) {
    Values values;
    std::copy_n(x.data() + first, kLeadingBlock, values.at);
    blocks.push_back(EncodeLeadingBlock(values.at, unit));
    EXPECT_EQ(DecodeE4m3(blocks.back().scale), BitsFloat(read())) << first;
  }
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(blocks[i / kLeadingBlock].codes >> (4 * (i % kLeadingBlock)) & 15U, read()) << i;
  }
  EXPECT_FALSE(file.fail());
}

TEST(LeadingBlocksTest, NaN_Stays) {
  EXPECT_TRUE(std::isnan(LeadingUnit(kNaN)));
  const Values x;
  const float unit = LeadingUnit(kNaN);
  for (const float value : Decoded(EncodeLeadingBlock(x.at, unit), unit).at) {
    EXPECT_TRUE(std::isnan(value));
  }
}

}  // namespace
}  // namespace hearth::formats
