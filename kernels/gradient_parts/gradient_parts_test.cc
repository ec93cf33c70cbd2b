#include "kernels/gradient_parts/gradient_parts.h"

#include <cmath>
#include <limits>
#include <vector>

#include "common/formats/reduce_formats.h"
#include "gtest/gtest.h"

namespace hearth::kernels {
namespace {

using formats::kReduceBlock;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What one rank's part of one block travels as, and the sum of that part alone.
struct Coded {
  explicit Coded(std::vector<float> x) : codes(x.size()), scales(x.size() / kReduceBlock), y(x) {
    const auto count = static_cast<int64_t>(x.size());
    const TensorView code_view(codes.data(), DType::kE4M3, {count});
    const TensorView scale_view(scales.data(), DType::kE8M0, {count / kReduceBlock});
    EXPECT_TRUE(EncodeParts(Exec(), {View(x.data(), {count}), code_view, scale_view}).ok());
    EXPECT_TRUE(SumParts(Exec(), {code_view, scale_view, View(y.data(), {count})}).ok());
  }
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  std::vector<float> y;
};

std::vector<float> Block(std::initializer_list<float> first) {
  std::vector<float> x(first);
  x.resize(kReduceBlock);
  return x;
}

TEST(GradientParts, Values_OfTheFormat_ComeBackExactly) {
  // The largest is 448 times 2^-20; 3 bits behind the leading one, and a subnormal.
  const float unit = std::ldexp(1.0F, -20);
  const std::vector<float> x =
      Block({448 * unit, -240 * unit, 1.125F * unit, std::ldexp(unit, -9), -0.0F, 3.5F * unit});
  const Coded coded(x);
  EXPECT_EQ(coded.scales[0], 127 - 20);
  EXPECT_EQ(coded.codes[0], 0x7E);
  EXPECT_EQ(coded.codes[3], 0x01);
  EXPECT_EQ(coded.codes[4], 0x80);
  EXPECT_EQ(coded.y, x);
}

TEST(GradientParts, LargestOfABlock_NeverSaturates) {
  for (const float largest : {448.0F, 449.0F, 500.0F, 895.9F, 1e-30F, 3e38F, 7e-39F}) {
    const Coded coded(Block({largest, -largest / 3}));
    EXPECT_NEAR(coded.y[0] / largest, 1, 1.0 / 16) << largest;
    EXPECT_NEAR(coded.y[1] / (-largest / 3), 1, 1.0 / 16) << largest;
  }
}

TEST(GradientParts, Zeros_AndWhatIsFarBelowTheLargest_BecomeZero) {
  EXPECT_EQ(Coded(Block({})).y, Block({}));
  const Coded coded(Block({1.0F, std::ldexp(1.0F, -17), std::ldexp(1.0F, -18)}));
  // 1 / 448 is rounded up to 2^-8, so codes reach down to 2^-17; half of that is a tie, to even.
  EXPECT_EQ(coded.y[1], std::ldexp(1.0F, -17));
  EXPECT_EQ(coded.y[2], 0);
}

TEST(GradientParts, NotFinite_StaysSo_AndHarmsNoOther) {
  const std::vector<float> without = Block({0.5F, 0, 0, 0, -0.25F});
  std::vector<float> x = without;
  x[1] = kNan;
  x[2] = kInfinity;
  x[3] = -kInfinity;
  const Coded coded(x);
  EXPECT_EQ(coded.scales[0], Coded(without).scales[0]);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i >= 1 && i <= 3) {
      EXPECT_EQ(coded.codes[i], 0x7F);
      EXPECT_TRUE(std::isnan(coded.y[i])) << i;
    } else {
      EXPECT_EQ(coded.y[i], without[i]) << i;
    }
  }
  EXPECT_TRUE(std::isnan(Coded(std::vector<float>(kReduceBlock, kNan)).y[7]));
}

TEST(GradientParts, Sums_AreInTheOrderOfTheParts_AndRoundedToBf16Once) {
  // Three parts of two blocks. 256 + 1 is 256 in bf16, so 256 + 1 + 1 is 258 only if nothing is
  // rounded in between. 2^24 - 2^24 + 1 is 0 in fp32 if the 1 is added before the last.
  constexpr int64_t kLength = int64_t{2} * kReduceBlock;
  std::vector<float> x(3 * kLength);
  x[0] = 256;
  x[kLength] = x[2 * kLength] = 1;
  x[kReduceBlock] = std::ldexp(1.0F, 24);
  x[kLength + kReduceBlock] = -std::ldexp(1.0F, 24);
  x[2 * kLength + kReduceBlock] = 1;
  std::vector<uint8_t> codes(x.size());
  std::vector<uint8_t> scales(x.size() / kReduceBlock);
  std::vector<float> y(kLength);
  const TensorView code_view(codes.data(), DType::kE4M3, {3, kLength});
  const TensorView scale_view(scales.data(), DType::kE8M0, {3, 2});
  ASSERT_TRUE(EncodeParts(Exec(), {View(x.data(), {3 * kLength}), code_view, scale_view}).ok());
  ASSERT_TRUE(SumParts(Exec(), {code_view, scale_view, View(y.data(), {kLength})}).ok());
  EXPECT_EQ(y[0], 258);
  EXPECT_EQ(y[kReduceBlock], 1);
}

TEST(GradientParts, WrongArguments_Refused) {
  std::vector<float> x(size_t{2} * kReduceBlock);
  std::vector<uint8_t> codes(size_t{2} * kReduceBlock);
  std::vector<uint8_t> scales(2);
  const TensorView values = View(x.data(), {int64_t{2} * kReduceBlock});
  const TensorView coded(codes.data(), DType::kE4M3, {int64_t{2} * kReduceBlock});
  const TensorView scale(scales.data(), DType::kE8M0, {2});
  EncodePartsArgs encode = {values, coded, scale};
  EXPECT_TRUE(CanImplement(encode).ok());
  encode.codes = TensorView(codes.data(), DType::kE4M3, {kReduceBlock});
  encode.scales = TensorView(scales.data(), DType::kE8M0, {1});
  EXPECT_TRUE(absl::IsInvalidArgument(CanImplement(encode))) << "too few codes";
  encode = {View(x.data(), {100}), coded, scale};
  EXPECT_TRUE(absl::IsInvalidArgument(CanImplement(encode))) << "not whole blocks";
  encode = {values, TensorView(codes.data(), DType::kE5M2, {int64_t{2} * kReduceBlock}), scale};
  EXPECT_TRUE(absl::IsInvalidArgument(CanImplement(encode)));
  encode = {values, coded, TensorView(scales.data(), DType::kE8M0, {1})};
  EXPECT_TRUE(absl::IsInvalidArgument(CanImplement(encode)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      CanImplement(EncodePartsArgs{View(x.data() + 1, {kReduceBlock}), coded, scale})))
      << "not aligned";
  EXPECT_TRUE(CanImplement(SumPartsArgs{coded, scale, values}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      CanImplement(SumPartsArgs{coded, scale, View(x.data(), {kReduceBlock})})));
}

}  // namespace
}  // namespace hearth::kernels
