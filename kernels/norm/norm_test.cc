#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kRows = 70;
constexpr int64_t kCols = 37;

struct Data {
  std::vector<float> x = std::vector<float>(kRows * kCols);
  std::vector<float> residual = std::vector<float>(kRows * kCols);
  std::vector<float> sum = std::vector<float>(kRows * kCols);
  std::vector<float> y = std::vector<float>(kRows * kCols);
  std::vector<float> weight = std::vector<float>(kCols, 1.25F);

  Data() {
    FillNormal({1, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 1.0, x.data(), kRows * kCols);
    FillNormal({1, RngPurpose::kTest, 0, 0, 1}, 0, 0.0, 1.0, residual.data(), kRows * kCols);
  }
  RmsNormForwardArgs Args() {
    RmsNormForwardArgs args;
    args.x = View(x.data(), {kRows, kCols});
    args.residual = View(residual.data(), {kRows, kCols});
    args.sum = View(sum.data(), {kRows, kCols});
    args.y = View(y.data(), {kRows, kCols});
    args.weight = View(weight.data(), {kCols});
    return args;
  }
};

TEST(RmsNormForward, SumOverResidualAndYOverX_SameBits) {
  Data apart;
  ASSERT_TRUE(RmsNormForward(Exec(), apart.Args()).ok());
  Data aliased;
  RmsNormForwardArgs args = aliased.Args();
  args.sum = args.residual;
  args.y = args.x;
  ASSERT_TRUE(RmsNormForward(Exec(), args).ok());
  EXPECT_EQ(aliased.residual, apart.sum);
  EXPECT_EQ(aliased.x, apart.y);
}

TEST(RmsNormForward, RoundBf16_OutputsAreRepresentable) {
  Data data;
  RmsNormForwardArgs args = data.Args();
  args.round_sum = DType::kBF16;
  args.round_y = DType::kBF16;
  ASSERT_TRUE(RmsNormForward(Exec(), args).ok());
  for (size_t i = 0; i < data.y.size(); ++i) {
    ASSERT_EQ(data.y[i], RoundBf16(data.y[i]));
    ASSERT_EQ(data.sum[i], RoundBf16(data.x[i] + data.residual[i]));
  }
}

// Rows of NVFP4 blocks.
struct Blocks {
  alignas(16) std::array<uint8_t, 512> values = {};
  alignas(16) std::array<uint8_t, 512> scales = {};
  float amax = 4.0F;
  float tensor_scale = 0.0F;

  BlockQuantView View() {
    BlockQuantView view;
    view.rows.values = values.data();
    view.rows.scales = scales.data();
    view.rows.amax = &amax;
    view.rows.tensor_scale = &tensor_scale;
    return view;
  }
};

TEST(RmsNormForward, BlocksWithoutPlainOutput_AreThoseBesideIt) {
  constexpr int64_t kCount = 1024;
  std::vector<float> x(kCount);
  FillNormal({1, RngPurpose::kTest, 0, 0, 2}, 0, 0.0, 1.0, x.data(), kCount);
  std::vector<float> y(x.size());
  std::vector<float> weight(32, 1.0F);
  RmsNormForwardArgs args;
  args.x = View(x.data(), {32, 32});
  args.weight = View(weight.data(), {32});
  args.y = View(y.data(), {32, 32});
  EXPECT_TRUE(WritesBlocks(Exec(), args));
  Blocks beside;
  args.y_blocks = beside.View();
  ASSERT_TRUE(RmsNormForward(Exec(), args).ok());
  Blocks alone;
  args.y = TensorView();
  args.y_blocks = alone.View();
  ASSERT_TRUE(RmsNormForward(Exec(), args).ok());
  EXPECT_EQ(alone.values, beside.values);
  EXPECT_EQ(alone.scales, beside.scales);
  EXPECT_GT(alone.tensor_scale, 0.0F);
  EXPECT_NE(alone.values, Blocks().values);
}

TEST(RmsNormForward, BlocksOfRowsThatAreNoWholeBlocks_AreRefused) {
  Data data;
  Blocks blocks;
  RmsNormForwardArgs args = data.Args();
  args.y_blocks = blocks.View();
  EXPECT_EQ(RmsNormForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RmsNormForward, WritesBlocks_OnAGpuNotOfLongRowsOrWithoutStatistics) {
  Exec gpu;
  gpu.device = Device::kCuda;
  RmsNormForwardArgs args;
  std::vector<float> values(8224);
  args.x = View(values.data(), {1, 32});
  EXPECT_FALSE(WritesBlocks(gpu, args));
  args.rstd = View(values.data(), {1});
  args.x = View(values.data(), {1, 8224});
  EXPECT_FALSE(WritesBlocks(gpu, args));
  EXPECT_TRUE(WritesBlocks(Exec(), args));
}

TEST(RmsNormBackward, BlocksOfDx_AreWrittenBesideItAndNotBesideFp8) {
  constexpr int64_t kCount = 1024;
  std::vector<float> dy(kCount);
  std::vector<float> s(kCount);
  FillNormal({1, RngPurpose::kTest, 0, 0, 3}, 0, 0.0, 1.0, dy.data(), kCount);
  FillNormal({1, RngPurpose::kTest, 0, 0, 4}, 0, 0.0, 1.0, s.data(), kCount);
  std::vector<float> weight(32, 1.0F);
  std::vector<float> rstd(32, 1.0F);
  std::vector<float> plain(dy.size());
  RmsNormBackwardArgs args;
  args.dy = View(dy.data(), {32, 32});
  args.s = View(s.data(), {32, 32});
  args.weight = View(weight.data(), {32});
  args.rstd = View(rstd.data(), {32});
  args.dx = View(plain.data(), {32, 32});
  EXPECT_TRUE(WritesBlocks(Exec(), args));
  ASSERT_TRUE(RmsNormBackward(Exec(), args).ok());
  std::vector<float> beside(dy.size());
  args.dx = View(beside.data(), {32, 32});
  Blocks blocks;
  args.dx_blocks = blocks.View();
  ASSERT_TRUE(RmsNormBackward(Exec(), args).ok());
  EXPECT_EQ(beside, plain);
  EXPECT_NE(blocks.values, Blocks().values);
  float amax = 0.0F;
  args.dx_quant.amax = &amax;
  EXPECT_EQ(RmsNormBackward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

// A recipe may round gradients to either format: the dtype of the view says which.
TEST(RmsNormBackward, Fp8OfDx_IsInTheFormatAskedFor) {
  std::vector<float> dy(kRows * kCols);
  std::vector<float> s(kRows * kCols);
  FillNormal({1, RngPurpose::kTest, 0, 0, 5}, 0, 0.0, 1.0, dy.data(), kRows * kCols);
  FillNormal({1, RngPurpose::kTest, 0, 0, 6}, 0, 0.0, 1.0, s.data(), kRows * kCols);
  std::vector<float> weight(kCols, 1.0F);
  std::vector<float> rstd(kRows, 1.0F);
  std::vector<float> dx(kRows * kCols);
  std::vector<uint8_t> codes(kRows * kCols);
  const float scale = 16.0F;
  RmsNormBackwardArgs args;
  args.dy = View(dy.data(), {kRows, kCols});
  args.s = View(s.data(), {kRows, kCols});
  args.weight = View(weight.data(), {kCols});
  args.rstd = View(rstd.data(), {kRows});
  args.dx = View(dx.data(), {kRows, kCols});
  for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
    args.dx_quant = {dtype, codes.data(), nullptr, &scale, nullptr};
    ASSERT_TRUE(RmsNormBackward(Exec(), args).ok());
    for (size_t i = 0; i < dx.size(); ++i) {
      const float scaled = dx[i] * scale;
      ASSERT_EQ(codes[i], dtype == DType::kE4M3 ? EncodeE4m3(scaled) : EncodeE5m2(scaled)) << i;
    }
  }
}

// Both norms share checks; each door names its op and its own operands.
TEST(LayerNorm, BadArguments_AreRefusedUnderItsName) {
  Data data;
  std::vector<float> mean(kRows);
  LayerNormForwardArgs args;
  static_cast<NormForwardArgs&>(args) = data.Args();
  ASSERT_TRUE(LayerNormForward(Exec(), args).ok());
  args.mean = View(mean.data(), {kRows});
  const absl::Status status = LayerNormForward(Exec(), args);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "layernorm: mean and rstd must both be present or both absent");
  args.mean = TensorView();
  args.bias = View(mean.data(), {kRows});
  EXPECT_EQ(LayerNormForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RmsNormBackward, WritesBlocks_OnAGpuNotOfLongRows) {
  Exec gpu;
  gpu.device = Device::kCuda;
  std::vector<float> values(8224);
  RmsNormBackwardArgs args;
  args.dy = View(values.data(), {1, 8224});
  EXPECT_FALSE(WritesBlocks(gpu, args));
}

TEST(RmsNormForward, BadArguments_AreRefused) {
  Data data;
  RmsNormForwardArgs args = data.Args();
  args.sum = TensorView();
  EXPECT_EQ(RmsNormForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
  args = data.Args();
  args.y_quant.rows = data.y.data();  // without a scale
  EXPECT_EQ(RmsNormForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
  args = data.Args();
  args.y = TensorView();
  EXPECT_EQ(RmsNormForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
  args = data.Args();
  args.round_y = DType::kE4M3;
  EXPECT_EQ(RmsNormForward(Exec(), args).code(), absl::StatusCode::kUnimplemented);
  args = data.Args();
  args.weight = View(data.weight.data(), {kCols - 1});
  EXPECT_EQ(RmsNormForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
