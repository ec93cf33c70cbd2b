#include "common/formats/state_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace hearth::formats {
namespace {

constexpr uint32_t kOneBits = 0x3F800000;  // of 1.0
constexpr uint32_t kSignBit = 0x80000000;

template <typename Constant>
class StateTablesTest : public testing::Test {
 protected:
  static constexpr StateCodec kCodec = Constant::value;
  using Code = StateCode<kCodec>;
  static constexpr uint32_t kMask = (1U << RowOf(kCodec).bits) - 1;

  StateTablesTest() {
    for (int i = 0; i < StateTables<kCodec>::kEntries; ++i) {
      tables_.Set(i, decades_.rows);
    }
  }
  uint32_t Reference(uint32_t bits) const { return Code::Encode(BitsFloat(bits), decades_.rows); }
  uint32_t Encode(uint32_t bits) const { return tables_.Encode(BitsFloat(bits)) & kMask; }
  void ExpectSame(uint32_t bits) const {
    ASSERT_EQ(Encode(bits), Reference(bits)) << BitsFloat(bits);
  }
  // Looks at each change of the code between `low` and `high`, and at both floats beside it;
  // returns their number. Codes are monotonous.
  int Changes(uint32_t low, uint32_t high) const {
    if (Reference(low) == Reference(high)) {
      return 0;
    }
    if (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      return Changes(low, middle) + Changes(middle, high);
    }
    for (uint32_t bits = std::max(low, 1U) - 1; bits <= high + 1; ++bits) {
      if (BitsFloat(bits & ~kSignBit) <= 1) {
        ExpectSame(bits);
      }
    }
    return 1;
  }

  const StateDecades decades_ = Code::Decades();
  StateTables<kCodec> tables_ = {};
};

using DynamicCodecs =
    testing::Types<std::integral_constant<StateCodec, StateCodec::kDynamicSigned8>,
                   std::integral_constant<StateCodec, StateCodec::kDynamicUnsigned8>,
                   std::integral_constant<StateCodec, StateCodec::kDynamicSigned4>>;
TYPED_TEST_SUITE(StateTablesTest, DynamicCodecs);

TYPED_TEST(StateTablesTest, Decode_HasTheBitsOfTheCodec) {
  for (uint32_t code = 0; code <= this->kMask; ++code) {
    EXPECT_EQ(FloatBits(this->tables_.Decode(code)),
              FloatBits(TestFixture::Code::Decode(code, this->decades_.rows)))
        << code;
  }
}

TYPED_TEST(StateTablesTest, Encode_AtEveryMiddleBetweenTwoValues_GivesTheCodesOfTheCodec) {
  int changes = this->Changes(0, kOneBits);
  if (TestFixture::Code::kSigned) {
    changes += this->Changes(kSignBit, kSignBit | kOneBits);
  }
  EXPECT_EQ(changes, static_cast<int>(this->kMask));  // between neighbours in the map
}

TYPED_TEST(StateTablesTest, Encode_OfASweep_GivesTheCodesOfTheCodec) {
  for (uint32_t bits = 0; bits <= kOneBits; bits += 1009) {
    this->ExpectSame(bits);
    if (TestFixture::Code::kSigned) {
      this->ExpectSame(bits | kSignBit);
    }
  }
  this->ExpectSame(FloatBits(std::numeric_limits<float>::quiet_NaN()));
}

// The linear map of 4 bits, against the C library's rounding to even.
TEST(StateTables, LinearUnsigned4_RoundsToTheNearestSixteenth) {
  const StateTables<StateCodec::kLinearUnsigned4> tables = {};
  const auto check = [&tables](float x) {
    const auto sixteenths = static_cast<uint32_t>(std::nearbyint(double{x} * 16));
    ASSERT_EQ(tables.Encode(x), std::max(sixteenths, 1U) - 1) << x;
  };
  for (int i = 0; i < 32; ++i) {
    const float middle = static_cast<float>(i) / 32;
    check(middle);
    check(std::nextafter(middle, 1.0F));
    check(std::nextafter(middle, 0.0F));
  }
  for (uint32_t bits = 0; bits <= kOneBits; bits += 1009) {
    check(BitsFloat(bits));
  }
  EXPECT_EQ(tables.Encode(std::numeric_limits<float>::quiet_NaN()), 0U);
}

}  // namespace
}  // namespace hearth::formats
