#include "kernels/round/round.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

TEST(RoundTo, PackedThenWidened_EqualsEmulated) {
  constexpr int64_t kCount = 50001;
  std::vector<float> x(kCount);
  FillNormal({1, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 3.0, x.data(), kCount);
  for (DType to : {DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2}) {
    std::vector<uint16_t> storage(kCount);
    std::vector<float> emulated(kCount);
    std::vector<float> widened(kCount);
    const TensorView packed(storage.data(), to, {kCount});
    Exec exec;
    exec.threads = 2;
    ASSERT_TRUE(RoundTo(exec, {View(x.data(), {kCount}), packed, to}).ok());
    ASSERT_TRUE(
        RoundTo(exec, {View(x.data(), {kCount}), View(emulated.data(), {kCount}), to}).ok());
    ASSERT_TRUE(Widen(exec, {packed, View(widened.data(), {kCount})}).ok());
    EXPECT_EQ(emulated, widened) << DTypeName(to);
  }
}

TEST(RoundTo, InPlace_IsIdempotent) {
  std::vector<double> x = {1.0 + 0x1p-9, -3.14159, 1e-40, 7.0};
  const RoundToArgs args = {View(x.data(), {4}), View(x.data(), {4}), DType::kBF16};
  ASSERT_TRUE(RoundTo(Exec(), args).ok());
  const std::vector<double> once = x;
  EXPECT_EQ(x[0], 1.0);
  EXPECT_EQ(x[3], 7.0);
  ASSERT_TRUE(RoundTo(Exec(), args).ok());
  EXPECT_EQ(x, once);
}

TEST(RoundTo, UnknownFormat_IsUnimplemented) {
  std::vector<float> x(4);
  EXPECT_EQ(RoundTo(Exec(), {View(x.data(), {4}), View(x.data(), {4}), DType::kE2M1}).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace hearth::kernels
