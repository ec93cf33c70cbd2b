#include "common/formats/weight_codecs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "common/formats/stored_formats.h"

namespace hearth::formats {
namespace {

constexpr WeightCodec kCodecs[] = {WeightCodec::kQ80, WeightCodec::kQ40, WeightCodec::kNvfp4};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int CodesOf(WeightCodec codec) {
  return codec == WeightCodec::kQ80 ? 256 : 16;
}

// Every scale that a codec can store, apart from NaN.
template <WeightCodec kCodec>
std::vector<float> Scales() {
  std::vector<float> scales;
  uint8_t block[64] = {};
  const int count = kCodec == WeightCodec::kNvfp4 ? 0x7F : 0x10000;
  for (int bits = 0; bits < count; ++bits) {
    block[0] = static_cast<uint8_t>(bits & 0xFF);
    block[1] = static_cast<uint8_t>(bits >> 8);
    const float d = WeightCode<kCodec>::Scale(block, 0);
    if (std::isfinite(d) && d != 0.0F) {
      scales.push_back(d);
    }
  }
  return scales;
}

TEST(WeightCodecs, EveryValue_HasItsCode_WhateverTheRandomBits) {
  for (const WeightCodec codec : kCodecs) {
    DispatchWeightCodec(codec, [&]<WeightCodec kCodec>(WeightCodecTag<kCodec>) {
      using Code = WeightCode<kCodec>;
      for (const float d : Scales<kCodec>()) {
        if (kCodec == WeightCodec::kQ80 && d < 0) {
          continue;  // such scales are never made
        }
        for (int c = 0; c < CodesOf(kCodec); ++c) {
          const auto code = static_cast<uint32_t>(c);
          if (kCodec == WeightCodec::kQ80 && code == 0x80) {
            continue;  // -128 is no code
          }
          const float value = Code::Value(code, d);
          const auto same = [&](uint32_t got) { return Code::Value(got, d) == value; };
          ASSERT_TRUE(same(Code::Nearest(value, d))) << RowOf(kCodec).name << " " << d << " " << c;
          for (const uint32_t random : {0U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
            ASSERT_TRUE(same(Code::Stochastic(value, d, random)))
                << RowOf(kCodec).name << " " << d << " " << c << " " << random;
          }
        }
      }
    });
  }
}

TEST(WeightCodecs, EveryScale_IsStoredAsItIs) {
  for (const WeightCodec codec : kCodecs) {
    DispatchWeightCodec(codec, [&]<WeightCodec kCodec>(WeightCodecTag<kCodec>) {
      for (const float d : Scales<kCodec>()) {
        uint8_t block[64] = {};
        WeightCode<kCodec>::PutScale(block, 0, d);
        ASSERT_EQ(WeightCode<kCodec>::Scale(block, 0), d) << RowOf(kCodec).name;
      }
    });
  }
}

TEST(WeightCodecs, NewScale_HoldsItsRange_AndIsKept) {
  for (const WeightCodec codec : kCodecs) {
    DispatchWeightCodec(codec, [&]<WeightCodec kCodec>(WeightCodecTag<kCodec>) {
      using Code = WeightCode<kCodec>;
      for (int k = 0; k < 69; ++k) {  // up to 2
        const float amax = 1e-9F * std::pow(1.37F, static_cast<float>(k));
        for (const WeightRange range : {WeightRange{-amax, amax / 3}, WeightRange{-amax / 5, amax},
                                        WeightRange{-amax, amax}}) {
          const float d = Code::NextScale(0.0F, range);
          // An extreme is no further away than half a step of the coarsest codes.
          const float step = kCodec == WeightCodec::kNvfp4 ? 2.0F : 1.0F;
          for (const float x : {range.least, range.largest}) {
            ASSERT_LE(std::fabs(Code::Value(Code::Nearest(x, d), d) - x),
                      0.5001F * step * std::fabs(d))
                << RowOf(kCodec).name << " " << x << " " << d;
          }
          ASSERT_EQ(Code::NextScale(d, range), d);
        }
      }
    });
  }
}

TEST(WeightCodecs, Scale_StaysWhileValuesFit_AndUseHalfOfTheCodes) {
  using Q8 = WeightCode<WeightCodec::kQ80>;
  constexpr float kD = 0.25F;
  EXPECT_EQ(Q8::NextScale(kD, {-127 * kD, 0.0F}), kD);
  EXPECT_NE(Q8::NextScale(kD, {-127.1F * kD, 0.0F}), kD);
  EXPECT_EQ(Q8::NextScale(kD, {0.0F, 56 * kD}), kD);
  EXPECT_LT(Q8::NextScale(kD, {0.0F, 55.9F * kD}), kD);
  using Q4 = WeightCode<WeightCodec::kQ40>;
  EXPECT_EQ(Q4::NextScale(kD, {-8 * kD, 7 * kD}), kD);
  EXPECT_EQ(Q4::NextScale(-kD, {-7 * kD, 8 * kD}), -kD);
  EXPECT_NE(Q4::NextScale(kD, {-kD, 7.1F * kD}), kD);
  EXPECT_LT(Q4::NextScale(kD, {-kD, 7.1F * kD}), 0.0F) << "the largest is positive";
  EXPECT_GT(Q4::NextScale(0.0F, {-kD, 0.5F * kD}), 0.0F);
  using Nv = WeightCode<WeightCodec::kNvfp4>;
  constexpr float kN = 0x1p-7F;
  EXPECT_EQ(Nv::NextScale(kN, {-6 * kN, kN}), kN);
  EXPECT_GT(Nv::NextScale(kN, {-6.1F * kN, kN}), kN);
  EXPECT_LT(Nv::NextScale(kN, {-2.4F * kN, kN}), kN);
}

TEST(WeightCodecs, WhatIsNotFinite_MakesTheScaleNan) {
  for (const WeightCodec codec : kCodecs) {
    DispatchWeightCodec(codec, [&]<WeightCodec kCodec>(WeightCodecTag<kCodec>) {
      using Code = WeightCode<kCodec>;
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      for (const WeightRange& range :
           {Join({1.0F, 1.0F}, {kNan, kNan}), Join({kNan, kNan}, {1.0F, 1.0F}),
            WeightRange{-kInfinity, 0.0F}, WeightRange{0.0F, kInfinity}}) {
        const float d = Code::NextScale(0.25F, range);
        ASSERT_TRUE(std::isnan(d)) << RowOf(kCodec).name;
        uint8_t block[64] = {};
        Code::PutScale(block, 0, d);
        EXPECT_TRUE(std::isnan(Code::Scale(block, 0)));
        EXPECT_TRUE(std::isnan(Code::Value(Code::Stochastic(1.0F, d, 7), d)));
      }
    });
  }
}

TEST(WeightCodecs, ZeroBytes_AreZeros) {
  for (const WeightCodec codec : kCodecs) {
    DispatchWeightCodec(codec, [&]<WeightCodec kCodec>(WeightCodecTag<kCodec>) {
      const uint8_t block[64] = {};
      for (int i = 0; i < RowOf(kCodec).block; ++i) {
        const float d = WeightCode<kCodec>::Scale(block, i / RowOf(kCodec).group);
        EXPECT_EQ(WeightCode<kCodec>::Value(CodeOf<kCodec>(block, i), d), 0.0F);
      }
      EXPECT_EQ(WeightCode<kCodec>::NextScale(0.0F, {0.0F, 0.0F}), 0.0F);
      EXPECT_EQ(WeightCode<kCodec>::Value(WeightCode<kCodec>::Nearest(0.0F, 0.0F), 0.0F), 0.0F);
    });
  }
}

// The mean of all random numbers is the value itself.
TEST(WeightCodecs, StochasticRounding_IsUnbiased) {
  constexpr int kDraws = 1 << 16;
  for (const WeightCodec codec : kCodecs) {
    DispatchWeightCodec(codec, [&]<WeightCodec kCodec>(WeightCodecTag<kCodec>) {
      constexpr float kD = 0.25F;
      for (const float x : {0.03F, -0.11F, 0.26F, 0.4F, -0.7F, 0.9F, -1.2F, 1.4F}) {
        double sum = 0;
        for (int i = 0; i < kDraws; ++i) {
          const uint32_t random = (static_cast<uint32_t>(i) << 16) + 0x8000U;
          sum += WeightCode<kCodec>::Value(WeightCode<kCodec>::Stochastic(x, kD, random), kD);
        }
        EXPECT_NEAR(sum / kDraws, x, 4e-5 * kD) << RowOf(kCodec).name << " " << x;
      }
    });
  }
}

// A small update counts on average: no part of it falls under the resolution of the random numbers.
TEST(WeightCodecs, RoundUpWith_GoesUpAsOftenAsThePartCutOff) {
  EXPECT_EQ(RoundUpWith(3.0F, 0), 3);
  EXPECT_EQ(RoundUpWith(-3.0F, 0), -3);
  EXPECT_EQ(RoundUpWith(-2.25F, 0xBFFFFFFFU), -3);
  EXPECT_EQ(RoundUpWith(-2.25F, 0xC0000100U), -3);
  EXPECT_EQ(RoundUpWith(2.25F, 0x3FFFFF00U), 3);
  EXPECT_EQ(RoundUpWith(2.25F, 0x40000100U), 2);
  EXPECT_EQ(RoundUpWith(0x1p-30F, 3), 1);
  EXPECT_EQ(RoundUpWith(0x1p-30F, 5), 0);
  EXPECT_EQ(RoundUpWith(kNan, 5), 0);
}

// Blocks as files have them: the decoder of GGUF's formats reads the same values.
TEST(WeightCodecs, Layout_IsThatOfStoredFormats) {
  for (const WeightCodec codec : kCodecs) {
    DispatchWeightCodec(codec, [&]<WeightCodec kCodec>(WeightCodecTag<kCodec>) {
      const StoredFormat* const format = FindStoredFormat(RowOf(kCodec).name);
      ASSERT_NE(format, nullptr);
      ASSERT_EQ(format->block, RowOf(kCodec).block);
      ASSERT_EQ(format->block_bytes, RowOf(kCodec).block_bytes);
      uint8_t block[36];
      for (int i = 0; i < 36; ++i) {
        block[i] = static_cast<uint8_t>(37 * i + 11);
      }
      float values[64];
      format->decode(block, 1, values);
      for (int i = 0; i < RowOf(kCodec).block; ++i) {
        const float d = WeightCode<kCodec>::Scale(block, i / RowOf(kCodec).group);
        EXPECT_EQ(WeightCode<kCodec>::Value(CodeOf<kCodec>(block, i), d), values[i]) << i;
      }
    });
  }
}

// A block of ggml's block_nvfp4, by its definition: ue4m3(d) / 2 times twice the value of E2M1.
TEST(WeightCodecs, Nvfp4_LiesAsInGgml) {
  uint8_t block[36] = {};
  block[2] = 0x38;               // 1.0 of the third group
  block[4 + 2 * 8 + 3] = 0xA5U;  // its elements 3 (5: 3.0) and 11 (10: -1.0)
  const float d = WeightCode<WeightCodec::kNvfp4>::Scale(block, 2);
  EXPECT_EQ(d, 0x1p-10F);
  const auto value = [&](int i) {
    return WeightCode<WeightCodec::kNvfp4>::Value(CodeOf<WeightCodec::kNvfp4>(block, i), d);
  };
  EXPECT_EQ(value(32 + 3), 3.0F * d);
  EXPECT_EQ(value(32 + 11), -1.0F * d);
  EXPECT_EQ(value(32 + 4), 0.0F);
}

}  // namespace
}  // namespace hearth::formats
