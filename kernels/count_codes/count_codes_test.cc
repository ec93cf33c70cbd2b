#include "kernels/count_codes/count_codes.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth::kernels {
namespace {

TEST(CountCodes, EveryCode_IsCountedAtTheRightEnd) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(i);
  }
  Exec exec;
  exec.threads = 2;
  uint64_t counts[2] = {9, 9};
  // Both signs of zero; E4M3: 448 and NaN; E5M2: 57344, infinity and three NaNs.
  const TensorView e4m3(codes.data(), DType::kE4M3, {16, 16});
  ASSERT_TRUE(CountCodes(exec, {e4m3, counts}).ok());
  EXPECT_EQ(counts[0], 2U);
  EXPECT_EQ(counts[1], 4U);
  const TensorView e5m2(codes.data(), DType::kE5M2, {256});
  ASSERT_TRUE(CountCodes(exec, {e5m2, counts}).ok());
  EXPECT_EQ(counts[0], 2U);
  EXPECT_EQ(counts[1], 10U);
}

TEST(CountCodes, BadArguments_AreRefused) {
  std::vector<float> wide(4);
  uint64_t counts[2];
  const TensorView x(wide.data(), DType::kF32, {4});
  EXPECT_EQ(CountCodes(Exec(), {x, counts}).code(), absl::StatusCode::kInvalidArgument);
  const TensorView fp8(static_cast<void*>(wide.data()), DType::kE4M3, {4});
  EXPECT_EQ(CountCodes(Exec(), {fp8, nullptr}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
