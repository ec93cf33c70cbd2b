#include "common/formats/codecs.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace hearth::formats {
namespace {

TEST(F16, EveryFiniteValue_RoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = DecodeF16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(DecodeF16(EncodeF16(value))));
    } else {
      ASSERT_EQ(EncodeF16(value), bits);
    }
  }
}

TEST(F16, BetweenValues_RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = DecodeF16(bits);
    const float high = DecodeF16(bits + 1);
    const float middle = (low + high) / 2;  // exact
    ASSERT_EQ(EncodeF16(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(EncodeF16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(EncodeF16(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(EncodeF16(65519.9f), 0x7bff);
  EXPECT_EQ(EncodeF16(65520.0f), 0x7c00);
  EXPECT_EQ(EncodeF16(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(EncodeBf16(1.0f), 0x3f80);
  EXPECT_EQ(EncodeBf16(BitsFloat(0x3f808000u)), 0x3f80);
  EXPECT_EQ(EncodeBf16(BitsFloat(0x3f818000u)), 0x3f82);
  EXPECT_EQ(EncodeBf16(BitsFloat(0x3f808001u)), 0x3f81);
  EXPECT_EQ(EncodeBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(DecodeBf16(EncodeBf16(BitsFloat(0x7f800001u)))));
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    ASSERT_EQ(EncodeBf16(DecodeBf16(static_cast<uint16_t>(bits))), bits);
  }
}

}  // namespace
}  // namespace hearth::formats
