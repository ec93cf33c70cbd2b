#include "common/formats/dtype.h"

#include <set>
#include <string_view>

#include "gtest/gtest.h"

namespace hearth::formats {
namespace {

TEST(DTypeName, EveryFormat_HasItsOwnAndParses) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(DType::kI64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_TRUE(names.insert(DTypeName(dtype)).second) << DTypeName(dtype);
    DType parsed = DType::kI64;
    ASSERT_TRUE(ParseDType(DTypeName(dtype), parsed)) << DTypeName(dtype);
    EXPECT_EQ(parsed, dtype);
    EXPECT_GT(DTypeBits(dtype), 0) << DTypeName(dtype);
  }
  EXPECT_EQ(DTypeName(DType::kF64), "fp64");
  EXPECT_EQ(DTypeName(DType::kE8M0), "e8m0");
  EXPECT_EQ(DTypeName(DType::kI64), "i64");
}

// Job files say these.
TEST(DTypeName, FormatsOfGradients_AreTheWordsOfJobFiles) {
  EXPECT_EQ(DTypeName(DType::kF32), "fp32");
  EXPECT_EQ(DTypeName(DType::kBF16), "bf16");
}

TEST(ParseDType, UnknownName_LeavesTheFormat) {
  DType unchanged = DType::kBF16;
  EXPECT_FALSE(ParseDType("fp12", unchanged));
  EXPECT_FALSE(ParseDType("", unchanged));
  EXPECT_EQ(unchanged, DType::kBF16);
}

TEST(DTypeBytes, HalfBytes_RoundUp) {
  EXPECT_EQ(DTypeBytes(DType::kE2M1, 3), 2);
  EXPECT_EQ(DTypeBytes(DType::kE2M1, 5), 3);
  EXPECT_EQ(DTypeBytes(DType::kBF16, 3), 6);
  EXPECT_EQ(DTypeBytes(DType::kF64, 0), 0);
}

}  // namespace
}  // namespace hearth::formats
