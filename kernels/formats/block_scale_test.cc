#include "kernels/formats/block_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::array<double, 8> kE2m1 = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};

// By search: the nearest magnitude, of two the one with the even code.
uint32_t NearestE2m1(double value) {
  const double magnitude = std::min(value, 8.0);
  uint32_t best = 0;
  for (uint32_t code = 1; code < 8; ++code) {
    const double off = std::fabs(kE2m1[code] - magnitude);
    const double least = std::fabs(kE2m1[best] - magnitude);
    if (off < least || (off == least && code % 2 == 0)) {
      best = code;
    }
  }
  return best;
}

TEST(E2m1, Decode_EveryCode_IsItsValue) {
  for (uint32_t code = 0; code < 8; ++code) {
    EXPECT_EQ(double{DecodeE2m1(code)}, kE2m1[code]);
    EXPECT_EQ(double{DecodeE2m1(code | 8)}, -kE2m1[code]);
    EXPECT_TRUE(std::signbit(DecodeE2m1(code | 8)));
    EXPECT_EQ(EncodeE2m1(DecodeE2m1(code)), code);
    EXPECT_EQ(EncodeE2m1(DecodeE2m1(code | 8)), code | 8);
  }
}

TEST(E2m1, Encode_EveryBf16_IsNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = DecodeBf16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_EQ(EncodeE2m1(value), 7U);
      continue;
    }
    const uint32_t sign = bits >> 15 << 3;
    ASSERT_EQ(EncodeE2m1(value), NearestE2m1(std::fabs(double{value})) | sign) << value;
    ASSERT_EQ(EncodeE2m1Pair(value, -value), EncodeE2m1(value) | ((EncodeE2m1(value) ^ 8) << 4));
  }
}

TEST(E2m1, Encode_NextToEveryMidpoint_RoundsOnce) {
  for (uint32_t code = 0; code < 7; ++code) {
    const float middle = static_cast<float>((kE2m1[code] + kE2m1[code + 1]) / 2);
    EXPECT_EQ(EncodeE2m1(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(EncodeE2m1(std::nextafter(middle, 0.0F)), code);
    EXPECT_EQ(EncodeE2m1(std::nextafter(middle, kInf)), code + 1);
  }
  EXPECT_EQ(EncodeE2m1(kInf), 7U);
  EXPECT_EQ(EncodeE2m1(-kInf), 15U);
  EXPECT_EQ(EncodeE2m1(-0.0F), 8U);
}

// Over all 2^16 random words the mean is the value to half a word.
template <typename Encode, typename Decode>
void ExpectExactMean(float value, double step, const Encode& encode, const Decode& decode) {
  double sum = 0.0;
  for (uint32_t random = 0; random < 0x10000; ++random) {
    sum += double{decode(encode(value, random))};
  }
  EXPECT_NEAR(sum / 0x10000, double{value}, step * 0x1p-17) << value;
}

TEST(E2m1, EncodeStochastic_AllRandomBits_MeanIsTheValue) {
  const auto encode = [](float v, uint32_t random) { return EncodeE2m1Stochastic(v, random); };
  const auto decode = [](uint32_t code) { return DecodeE2m1(code); };
  for (const float value : {0.0F, 0x1p-20F, 0.1F, 0.25F, 0.4999F, 0.7F, 1.2F, 1.75F, 1.9999F, 2.1F,
                            2.5F, 3.7F, 4.6F, 5.99F, 6.0F, -0.3F, -1.5F, -4.1F}) {
    ExpectExactMean(value, 2.0, encode, decode);
  }
  for (uint32_t random : {0U, 0x8000U, 0xFFFFU}) {
    EXPECT_EQ(EncodeE2m1Stochastic(6.1F, random), 7U);
    EXPECT_EQ(EncodeE2m1Stochastic(-kInf, random), 15U);
    EXPECT_EQ(EncodeE2m1Stochastic(std::nanf(""), random), 7U);
    for (uint32_t code = 0; code < 16; ++code) {
      EXPECT_EQ(EncodeE2m1Stochastic(DecodeE2m1(code), random), code);
    }
  }
}

TEST(Fp8, EncodeStochastic_AllRandomBits_MeanIsTheValue) {
  const auto e4m3 = [](float v, uint32_t random) { return EncodeE4m3Stochastic(v, random); };
  const auto e5m2 = [](float v, uint32_t random) { return EncodeE5m2Stochastic(v, random); };
  for (const float value :
       {0.0F, 0x1.8p-11F, 0x1.3p-8F, 0.013F, 0.3F, 1.03F, -7.9F, 100.0F, 440.0F}) {
    const double step =
        std::max(0x1p-9, std::exp2(std::floor(std::log2(std::fabs(double{value}))) - 3));
    ExpectExactMean(value, step, e4m3, [](uint8_t code) { return DecodeE4m3(code); });
    ExpectExactMean(value, 2 * step, e5m2, [](uint8_t code) { return DecodeE5m2(code); });
  }
  for (uint32_t random : {0U, 0xFFFFU}) {
    EXPECT_EQ(EncodeE4m3Stochastic(kInf, random), 0x7E);
    EXPECT_EQ(EncodeE4m3Stochastic(-450.0F, random), 0xFE);
    EXPECT_EQ(EncodeE4m3Stochastic(-std::nanf(""), random), 0x7F);
    EXPECT_EQ(EncodeE5m2Stochastic(60000.0F, random), 0x7B);
    EXPECT_EQ(EncodeE4m3Stochastic(0x1p-40F, random), 0);
  }
  for (uint32_t code = 0; code < 0x7F; ++code) {
    EXPECT_EQ(EncodeE4m3Stochastic(DecodeE4m3(static_cast<uint8_t>(code)), 0xFFFF), code);
  }
}

// Every bf16 to every narrow format: a nearest neighbour, decoded values go back to their code.
TEST(Fp8, Encode_EveryBf16_IsANearestNeighbour) {
  for (uint32_t bits = 0; bits < 0x8000; ++bits) {
    const float value = DecodeBf16(static_cast<uint16_t>(bits));
    const uint8_t e4m3 = EncodeE4m3(value);
    const uint8_t e5m2 = EncodeE5m2(value);
    if (std::isnan(value)) {
      ASSERT_EQ(e4m3, 0x7F);
      ASSERT_EQ(e5m2, 0x7F);
      continue;
    }
    const double e4m3_value = std::min(double{value}, 448.0);
    const double e5m2_value = std::min(double{value}, 57344.0);
    const auto off = [](double a, float b) { return std::fabs(a - double{b}); };
    ASSERT_LE(e4m3, 0x7E);
    ASSERT_LE(e5m2, 0x7B);
    for (int step : {-1, 1}) {
      const int near4 = std::clamp(e4m3 + step, 0, 0x7E);
      const int near5 = std::clamp(e5m2 + step, 0, 0x7B);
      ASSERT_LE(off(e4m3_value, DecodeE4m3(e4m3)),
                off(e4m3_value, DecodeE4m3(static_cast<uint8_t>(near4))));
      ASSERT_LE(off(e5m2_value, DecodeE5m2(e5m2)),
                off(e5m2_value, DecodeE5m2(static_cast<uint8_t>(near5))));
    }
  }
}

TEST(E8m0, EncodeUp_EveryBf16_IsTheLeastPowerNotBelow) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = DecodeBf16(static_cast<uint16_t>(bits));
    const uint8_t code = EncodeE8m0Up(value);
    if (std::isnan(value)) {
      ASSERT_EQ(code, 0xFF);
      continue;
    }
    const double magnitude = std::fabs(double{value});
    ASSERT_LE(code, 0xFE);
    if (magnitude <= 0x1p127) {
      ASSERT_GE(std::ldexp(1.0, code - 127), magnitude);
    }
    if (code > 0) {
      ASSERT_LT(std::ldexp(1.0, code - 128), magnitude);
    }
  }
  for (int code = 0; code < 0xFF; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_EQ(double{DecodeE8m0(byte)}, std::ldexp(1.0, code - 127));
    EXPECT_EQ(double{InverseE8m0(byte)}, std::ldexp(1.0, 127 - code));
    EXPECT_EQ(EncodeE8m0Up(DecodeE8m0(byte)), byte);
  }
  EXPECT_TRUE(std::isnan(DecodeE8m0(0xFF)));
}

TEST(BlockScale, ProductsOfE2m1AndE4m3_AreExactInBf16) {
  for (uint32_t q = 0; q < 16; ++q) {
    for (uint32_t b = 0; b < 0x7F; ++b) {
      const float product = DecodeE2m1(q) * DecodeE4m3(static_cast<uint8_t>(b));
      ASSERT_EQ(RoundBf16(product), product);
    }
  }
}

TEST(BlockScale, TensorScaleOf_UnusableAmax_IsOne) {
  for (const float amax : {0.0F, -1.0F, kInf, std::nanf("")}) {
    EXPECT_EQ(TensorScaleOf(amax, Rounding::kNearest).encode, 1.0F);
    EXPECT_EQ(TensorScaleOf(amax, Rounding::kNearest).decode, 1.0F);
  }
  EXPECT_EQ(TensorScaleOf(1e-45F, Rounding::kNearest).encode, FLT_MAX);
  EXPECT_EQ(TensorScaleOf(2.0F, Rounding::kNearest).encode, 1344.0F);
  EXPECT_EQ(TensorScaleOf(2.0F, Rounding::kFourOverSix).encode, 768.0F);
}

TEST(BlockScale, SwizzledScaleOffset_IsABijectionOnThePaddedTile) {
  constexpr int64_t kRows = 300;
  constexpr int64_t kBlocks = 10;
  std::vector<int> hits(SwizzledScaleBytes(kRows, kBlocks), 0);
  EXPECT_EQ(hits.size(), 384U * 12U);
  for (int64_t row = 0; row < 384; ++row) {
    for (int64_t block = 0; block < 12; ++block) {
      ++hits.at(static_cast<size_t>(SwizzledScaleOffset(row, block, kBlocks)));
    }
  }
  EXPECT_EQ(hits, std::vector<int>(hits.size(), 1));
  EXPECT_EQ(SwizzledScaleOffset(0, 1, kBlocks), 1);
  EXPECT_EQ(SwizzledScaleOffset(1, 0, kBlocks), 16);
  EXPECT_EQ(SwizzledScaleOffset(32, 0, kBlocks), 4);
  EXPECT_EQ(SwizzledScaleOffset(0, 4, kBlocks), 512);
  EXPECT_EQ(SwizzledScaleOffset(128, 0, kBlocks), 3 * 512);
}

TEST(Hadamard, Span_IsOrthonormalAndUsesTheSigns) {
  // Row i of the matrix times its own column is 1, times any other 0.
  for (int i = 0; i < kSpan; ++i) {
    float v[kSpan] = {};
    v[i] = 1.0F;
    HadamardSpan(v, kNvidiaSigns);
    const float sign = ((kNvidiaSigns >> i) & 1) != 0 ? -1.0F : 1.0F;
    EXPECT_EQ(v[0], sign);
    for (const float x : v) {
      EXPECT_EQ(std::fabs(x * HadamardNorm(16)), 0.25F);
    }
    HadamardSpan(v, 0);  // its own inverse except for the factor
    for (int j = 0; j < kSpan; ++j) {
      EXPECT_EQ(v[j] * 0.0625F, j == i ? sign : 0.0F);
    }
  }
  for (const int group : {16, 32, 64, 128}) {
    EXPECT_FLOAT_EQ(HadamardNorm(group), static_cast<float>(1.0 / std::sqrt(double(group))));
  }
}

TEST(Hadamard, SignsOf_SeededByStepAndRotation) {
  const SignWords a = SignsOf(HadamardSigns::kSeeded, 1, 2, 3);
  const SignWords same = SignsOf(HadamardSigns::kSeeded, 1, 2, 3);
  const SignWords step = SignsOf(HadamardSigns::kSeeded, 1, 3, 3);
  const SignWords rotation = SignsOf(HadamardSigns::kSeeded, 1, 2, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(a.words[i], same.words[i]);
    EXPECT_NE(a.words[i], step.words[i]);
    EXPECT_NE(a.words[i], rotation.words[i]);
  }
  EXPECT_EQ(a.Of(16), a.words[0] >> 16);
  EXPECT_EQ(SignsOf(HadamardSigns::kFixed, 1, 2, 3).Of(112), kNvidiaSigns);
}

}  // namespace
}  // namespace hearth::kernels
