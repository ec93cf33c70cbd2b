#include "common/io/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace hearth {
namespace {

uint32_t SumOf(std::string_view bytes) {
  Crc32c sum;
  sum.Extend(bytes);
  return sum.value();
}

// The vectors of RFC 3720, B.4.
TEST(Crc32c, KnownBytes_HaveTheirSums) {
  EXPECT_EQ(SumOf(""), 0u);
  EXPECT_EQ(SumOf("123456789"), 0xe3069283u);
  EXPECT_EQ(SumOf(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(SumOf(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, Pieces_HaveTheSumOfTheWhole) {
  const std::string text = "a text that is longer than eight bytes, so that both loops run";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Crc32c sum;
    sum.Extend(std::string_view(text).substr(0, cut));
    sum.Extend(std::string_view(text).substr(cut));
    EXPECT_EQ(sum.value(), SumOf(text)) << cut;
  }
}

}  // namespace
}  // namespace hearth
