#include "common/dataset/report/lengths.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace hearth::dataset {
namespace {

TEST(Lengths, Quantile_WithinOne32nd) {
  Lengths lengths;
  EXPECT_EQ(lengths.Quantile(0.5), 0);
  for (int64_t i = 1; i <= 100'000; ++i) {
    lengths.Add(i * 7);
  }
  for (const double q : {0.00001, 0.01, 0.5, 0.9, 0.99, 1.0}) {
    const double exact = q * 700'000;
    EXPECT_GE(static_cast<double>(lengths.Quantile(q)), exact * 0.99999) << q;
    EXPECT_LE(static_cast<double>(lengths.Quantile(q)), exact * 33 / 32 + 1) << q;
  }
  EXPECT_EQ(lengths.longest(), 700'000);
  EXPECT_EQ(lengths.Quantile(1), 700'000);
}

TEST(Lengths, ToText_ComesBack) {
  Lengths lengths;
  for (const int64_t n : {int64_t{0}, int64_t{63}, int64_t{64}, int64_t{65}, int64_t{1} << 40}) {
    lengths.Add(n);
  }
  const auto again = Lengths::Parse(lengths.ToText());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToText(), lengths.ToText());
  EXPECT_EQ(again->count(), 5);
  EXPECT_EQ(again->Quantile(0.5), 65);
  for (const char* bad : {"", "x", "5 1", "5 1:x", "5 99999:1", "5 -1:1"}) {
    EXPECT_FALSE(Lengths::Parse(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace hearth::dataset
