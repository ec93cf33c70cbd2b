#include "kernels/core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "kernels/core/normal_pair.h"

namespace hearth::kernels {
namespace {

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST(Philox4x32, Block_KnownAnswers_Match) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, Word_EveryKeyFieldChanged_Differs) {
  const RngKey base = {1, RngPurpose::kDropout, 2, 3, 4};
  const uint32_t word = RngWord(base, 5);
  EXPECT_EQ(word, RngWord(base, 5));
  for (const RngKey& other :
       {RngKey{9, RngPurpose::kDropout, 2, 3, 4}, RngKey{1, RngPurpose::kInit, 2, 3, 4},
        RngKey{1, RngPurpose::kDropout, 9, 3, 4}, RngKey{1, RngPurpose::kDropout, 2, 9, 4},
        RngKey{1, RngPurpose::kDropout, 2, 3, 9}}) {
    EXPECT_NE(word, RngWord(other, 5));
  }
  EXPECT_NE(word, RngWord(base, 6));
}

TEST(Rng, Normal_ManyDraws_MomentsMatch) {
  const RngKey key = {42, RngPurpose::kInit, 0, 0, 1};
  constexpr int64_t kCount = 200000;
  std::vector<double> draws(kCount);
  FillNormal(key, 0, 0.0, 1.0, draws.data(), kCount);
  double sum = 0.0;
  double squares = 0.0;
  for (double value : draws) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

// Box-Muller with the C library's functions.
NormalPair PairOfLibm(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(a) + 0.5) * 0x1p-32;
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(b) * 0x1p-32);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void ExpectNear(double got, double want, uint32_t a, uint32_t b) {
  // Beside a zero of sine or cosine the rounding of the angle is most of the value.
  const double bound = std::fabs(want) < 1e-14 ? 1e-9 : 1e-15;
  EXPECT_LE(std::fabs(got - want), bound * std::fabs(want)) << a << " " << b;
}

TEST(Rng, NormalPair_EdgesAndManyWords_AreLibms) {
  constexpr uint32_t kEdges[] = {0,          1,          0x1FFFFFFF, 0x20000000, 0x3FFFFFFF,
                                 0x40000000, 0x40000001, 0x60000000, 0x7FFFFFFF, 0x80000000,
                                 0x80000001, 0xA0000000, 0xC0000000, 0xE0000000, 0xFFFFFFFF};
  const auto compare = [](uint32_t a, uint32_t b) {
    const NormalPair got = MakeNormalPair(a, b);
    const NormalPair want = PairOfLibm(a, b);
    ExpectNear(got.first, want.first, a, b);
    ExpectNear(got.second, want.second, a, b);
  };
  for (const uint32_t a : kEdges) {
    for (const uint32_t b : kEdges) {
      compare(a, b);
    }
  }
  const RngKey key = {42, RngPurpose::kTest, 0, 0, 1};
  for (uint64_t element = 0; element < 400000; element += 2) {
    compare(RngWord(key, element), RngWord(key, element + 1));
  }
}

// Weights of a job are drawn like this: the bits are a promise to whoever repeats a run.
TEST(Rng, FillNormal_BitsOfWeights_DoNotChange) {
  std::vector<float> draws(1 << 16);
  FillNormal({1234, RngPurpose::kInit, 0, 0, 5}, 1, 0.0, 0.02, draws.data(), 1 << 16);
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a over the bits
  for (const float draw : draws) {
    uint32_t bits;
    std::memcpy(&bits, &draw, sizeof(bits));
    hash = (hash ^ bits) * 0x100000001B3;
  }
  EXPECT_EQ(hash, uint64_t{11696738594343352241U});
}

TEST(Rng, FillNormal_SplitAnywhere_SameNumbers) {
  const RngKey key = {42, RngPurpose::kInit, 0, 0, 1};
  std::vector<float> whole(23);
  FillNormal(key, 3, 0.5, 2.0, whole.data(), 23);
  for (int64_t split = 0; split <= 23; ++split) {
    std::vector<float> parts(23);
    FillNormal(key, 3, 0.5, 2.0, parts.data(), split);
    FillNormal(key, static_cast<uint64_t>(3 + split), 0.5, 2.0, parts.data() + split, 23 - split);
    EXPECT_EQ(whole, parts) << "split at " << split;
  }
  EXPECT_FLOAT_EQ(whole[7], static_cast<float>(0.5 + 2.0 * RngNormal(key, 10)));
}

}  // namespace
}  // namespace hearth::kernels
