#include "kernels/core/formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/core/rng.h"
#include "kernels/formats/span.h"

namespace hearth::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A format described independently of the implementation: by its list of finite magnitudes.
struct Format {
  const char* name;
  DType dtype;
  int codes;          // all codes with the sign bit clear
  uint32_t max_code;  // largest finite
  double largest;
  double smallest;  // subnormal
  bool saturates;
};

constexpr Format kFormats[] = {
    {"bf16", DType::kBF16, 0x8000, 0x7F7F, 0x1.FEp127, 0x1p-133, false},
    {"f16", DType::kF16, 0x8000, 0x7BFF, 65504.0, 0x1p-24, false},
    {"e4m3", DType::kE4M3, 0x80, 0x7E, 448.0, 0x1p-9, true},
    {"e5m2", DType::kE5M2, 0x80, 0x7B, 57344.0, 0x1p-16, true},
};

uint32_t Encode(DType dtype, float value) {
  switch (dtype) {
    case DType::kBF16:
      return EncodeBf16(value);
    case DType::kF16:
      return EncodeF16(value);
    case DType::kE4M3:
      return EncodeE4m3(value);
    default:
      return EncodeE5m2(value);
  }
}

float Decode(DType dtype, uint32_t code) {
  switch (dtype) {
    case DType::kBF16:
      return DecodeBf16(static_cast<uint16_t>(code));
    case DType::kF16:
      return DecodeF16(static_cast<uint16_t>(code));
    case DType::kE4M3:
      return DecodeE4m3(static_cast<uint8_t>(code));
    default:
      return DecodeE5m2(static_cast<uint8_t>(code));
  }
}

class FormatTest : public testing::TestWithParam<Format> {};

TEST_P(FormatTest, Decode_EveryCode_EncodesBackAndIsOrdered) {
  const Format& f = GetParam();
  float previous = -1.0F;
  for (uint32_t code = 0; code <= f.max_code; ++code) {
    const float value = Decode(f.dtype, code);
    ASSERT_GT(value, previous);
    previous = value;
    ASSERT_EQ(Encode(f.dtype, value), code);
    const uint32_t negative = code | static_cast<uint32_t>(f.codes);
    ASSERT_EQ(Decode(f.dtype, negative), -value);
    ASSERT_EQ(Encode(f.dtype, -value), negative);
  }
  EXPECT_EQ(double{Decode(f.dtype, f.max_code)}, f.largest);
  EXPECT_EQ(double{Decode(f.dtype, 1)}, f.smallest);
  for (uint32_t code = f.max_code + 1; code < static_cast<uint32_t>(f.codes); ++code) {
    ASSERT_FALSE(std::isfinite(Decode(f.dtype, code))) << code;
  }
}

// Every midpoint between neighbours, and the floats next to it on both sides.
TEST_P(FormatTest, Encode_AroundEveryMidpoint_RoundsToNearestEven) {
  const Format& f = GetParam();
  for (uint32_t code = 0; code < f.max_code; ++code) {
    const double low = double{Decode(f.dtype, code)};
    const double high = double{Decode(f.dtype, code + 1)};
    const float middle = static_cast<float>((low + high) / 2);
    if (double{middle} != (low + high) / 2) {
      continue;  // bf16 subnormals: the midpoint is below float's own resolution
    }
    ASSERT_EQ(Encode(f.dtype, middle), code % 2 == 0 ? code : code + 1);
    ASSERT_EQ(Encode(f.dtype, std::nextafter(middle, 0.0F)), code);
    ASSERT_EQ(Encode(f.dtype, std::nextafter(middle, kInf)), code + 1);
  }
}

TEST_P(FormatTest, Encode_BeyondRange_SaturatesOrOverflows) {
  const Format& f = GetParam();
  const float beyond = f.saturates ? static_cast<float>(f.largest) : kInf;
  EXPECT_EQ(Decode(f.dtype, Encode(f.dtype, kInf)), beyond);
  EXPECT_EQ(Decode(f.dtype, Encode(f.dtype, -kInf)), -beyond);
  EXPECT_EQ(Decode(f.dtype, Encode(f.dtype, std::numeric_limits<float>::max())), beyond);
  EXPECT_TRUE(std::isnan(Decode(f.dtype, Encode(f.dtype, std::nanf("")))));
  EXPECT_TRUE(std::isnan(Decode(f.dtype, Encode(f.dtype, -std::nanf("")))));
  // Half a step beyond the largest finite is where non-saturating formats turn to infinity.
  const double step = f.largest - double{Decode(f.dtype, f.max_code - 1)};
  const float edge = static_cast<float>(f.largest + step / 2);
  EXPECT_EQ(Decode(f.dtype, Encode(f.dtype, edge)), beyond);
  EXPECT_EQ(Encode(f.dtype, std::nextafter(edge, 0.0F)), f.max_code);
}

TEST_P(FormatTest, Encode_RandomBits_IsANearestNeighbour) {
  const Format& f = GetParam();
  const RngKey key = {1, RngPurpose::kTest, 0, 0, 0};
  for (uint64_t i = 0; i < 20000; ++i) {
    const float value = std::bit_cast<float>(RngWord(key, i) & 0x7FFFFFFF);
    if (!std::isfinite(value) || double{value} > f.largest) {
      continue;
    }
    const uint32_t code = Encode(f.dtype, value);
    const double error = std::fabs(double{Decode(f.dtype, code)} - double{value});
    if (code > 0) {
      ASSERT_LE(error, std::fabs(double{Decode(f.dtype, code - 1)} - double{value}));
    }
    if (code < f.max_code) {
      ASSERT_LE(error, std::fabs(double{Decode(f.dtype, code + 1)} - double{value}));
    }
  }
}

TEST_P(FormatTest, Spans_MatchScalars) {
  const Format& f = GetParam();
  std::vector<float> in(1001);
  FillNormal({2, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 100.0, in.data(), 1001);
  in[5] = std::nanf("");
  in[6] = kInf;
  std::vector<float> rounded = in;
  RoundSpan(rounded.data(), 1001, f.dtype);
  std::vector<uint16_t> packed(1001);
  ASSERT_TRUE(EncodeSpan(in.data(), 1001, f.dtype, packed.data()));
  std::vector<float> decoded(1001);
  ASSERT_TRUE(DecodeSpan(packed.data(), 1001, f.dtype, decoded.data()));
  for (size_t i = 0; i < in.size(); ++i) {
    const float expected = RoundToFormat(in[i], f.dtype);
    ASSERT_EQ(std::bit_cast<uint32_t>(rounded[i]), std::bit_cast<uint32_t>(expected)) << in[i];
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), std::bit_cast<uint32_t>(expected)) << in[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, FormatTest, testing::ValuesIn(kFormats), [](const auto& param_info) {
  return std::string(param_info.param.name);
});

TEST(Spans, UnknownFormat_IsRefused) {
  float value = 1.0F;
  EXPECT_FALSE(EncodeSpan(&value, 1, DType::kI32, &value));
  EXPECT_FALSE(DecodeSpan(&value, 1, DType::kE2M1, &value));
}

}  // namespace
}  // namespace hearth::kernels
