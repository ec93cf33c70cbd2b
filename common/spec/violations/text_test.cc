#include "common/spec/violations/text.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

TEST(TextTest, IsWhatAStreamWrites) {
  EXPECT_EQ(Text(), "");
  EXPECT_EQ(Text("layers.", 12, '.', std::string_view("qkv"), std::string(".weight")),
            "layers.12.qkv.weight");
  EXPECT_EQ(Text(std::numeric_limits<int64_t>::min(), ' ', std::numeric_limits<uint64_t>::max()),
            "-9223372036854775808 18446744073709551615");
  EXPECT_EQ(Text(0, ' ', -1, ' ', size_t{7}), "0 -1 7");
  EXPECT_EQ(Text(0.1, ' ', 1e6, ' ', 1.0 / 3, ' ', 2e-7), "0.1 1000000 0.333333333333 2e-07");
  EXPECT_EQ(Text(true, false), "10");
  const char* const word = "w";
  EXPECT_EQ(Text(word, uint8_t{'x'}), "wx");
}

}  // namespace
}  // namespace hearth::spec
