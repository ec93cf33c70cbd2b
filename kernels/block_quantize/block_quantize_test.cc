#include "kernels/block_quantize/block_quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/formats/block_scale.h"

namespace hearth::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

size_t Index(int64_t i) {
  return static_cast<size_t>(i);
}

// A form with memory of its own.
struct Owned {
  BlockForm form;
  std::vector<uint8_t> storage;
  float amax = 0.0F;
  float tensor_scale = 0.0F;
  float measured = 0.0F;
  uint64_t counts[2] = {0, 0};
  int64_t lines = 0;
  int64_t extent = 0;
  const BlockLayoutRow& layout;
  DType dtype;

  Owned(BlockLayout layout_in, int64_t lines_in, int64_t extent_in, float amax_in)
      : Owned(layout_in,
              lines_in,
              extent_in,
              amax_in,
              RowOf(layout_in).fp4 ? DType::kE2M1 : DType::kE4M3) {}
  Owned(BlockLayout layout_in, int64_t lines_in, int64_t extent_in, float amax_in, DType dtype_in)
      : amax(amax_in),
        lines(lines_in),
        extent(extent_in),
        layout(RowOf(layout_in)),
        dtype(dtype_in) {
    const size_t values = DTypeBytes(dtype, lines * extent);
    storage.resize(values + BlockScaleBytes(layout.layout, lines, extent) + 32);
    uint8_t* begin = storage.data();
    begin += (16 - reinterpret_cast<uintptr_t>(begin) % 16) % 16;
    form.values = begin;
    form.scales = begin + (values + 15) / 16 * 16;
    form.amax = layout.tensor_scale ? &amax : nullptr;
    form.tensor_scale = layout.tensor_scale ? &tensor_scale : nullptr;
    form.measured = &measured;
    form.counts = counts;
  }
  Owned(const Owned&) = delete;

  // The values, the tensor's scale too.
  std::vector<double> Decoded() const {
    // 16-byte aligned, as the op asks.
    std::vector<float> back(Index(lines * extent) + 4);
    float* begin = back.data();
    while (reinterpret_cast<uintptr_t>(begin) % 16 != 0) {
      ++begin;
    }
    BlockDequantizeArgs args;
    args.x = {layout.layout, dtype, form.values, form.scales, nullptr};
    args.y = View(begin, {lines, extent});
    EXPECT_TRUE(BlockDequantize(Exec(), args).ok());
    const double scale = layout.tensor_scale ? double{tensor_scale} : 1.0;
    std::vector<double> decoded(Index(lines * extent));
    std::transform(begin, begin + lines * extent, decoded.begin(),
                   [scale](float v) { return double{v} * scale; });
    return decoded;
  }
};

struct Matrix {
  int64_t rows, cols;
  std::vector<float> storage;
  float* data;

  Matrix(int64_t rows_in, int64_t cols_in) : rows(rows_in), cols(cols_in) {
    storage.resize(Index(rows * cols) + 4);
    data = storage.data();
    while (reinterpret_cast<uintptr_t>(data) % 16 != 0) {
      ++data;
    }
  }
  Matrix(const Matrix&) = delete;
  float& At(int64_t row, int64_t col) { return data[row * cols + col]; }
  float Amax() const {
    float amax = 0.0F;
    for (int64_t i = 0; i < rows * cols; ++i) {
      amax = std::max(amax, std::fabs(data[i]));
    }
    return amax;
  }
};

void FillNormalMatrix(Matrix& x, uint32_t tensor) {
  FillNormal({17, RngPurpose::kTest, 0, 0, tensor}, 0, 0.0, 1.0, x.data, x.rows * x.cols);
}

absl::Status QuantizeMatrix(const Matrix& x, const BlockQuantView& quant) {
  BlockQuantizeTensor tensor;
  tensor.x = View(x.data, {x.rows, x.cols});
  tensor.quant = quant;
  BlockQuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return BlockQuantize(Exec(), args);
}

BlockQuantView RowsOf(const Owned& rows) {
  BlockQuantView quant;
  quant.layout = rows.layout.layout;
  quant.dtype = rows.dtype;
  quant.rows = rows.form;
  quant.key.seed = 5;
  return quant;
}

double RelativeSquareError(const Matrix& x, const std::vector<double>& got) {
  double error = 0.0;
  double norm = 0.0;
  for (int64_t i = 0; i < x.rows * x.cols; ++i) {
    const double off = got[Index(i)] - double{x.data[i]};
    error += off * off;
    norm += double{x.data[i]} * double{x.data[i]};
  }
  return error / norm;
}

double Slope(const Matrix& x, const std::vector<double>& got) {
  double product = 0.0;
  double norm = 0.0;
  for (int64_t i = 0; i < x.rows * x.cols; ++i) {
    product += got[Index(i)] * double{x.data[i]};
    norm += double{x.data[i]} * double{x.data[i]};
  }
  return product / norm;
}

// The formulas of arXiv 2509.25149 appendix B, written down once more.
TEST(BlockQuantize, Nvfp4Nearest_FollowsTheFormulas) {
  Matrix x(16, 64);
  FillNormalMatrix(x, 1);
  Owned rows(BlockLayout::kNvfp4, 16, 64, x.Amax());
  ASSERT_TRUE(QuantizeMatrix(x, RowsOf(rows)).ok());
  const float encode = 2688.0F / x.Amax();
  const float decode = 1.0F / encode;
  EXPECT_EQ(rows.tensor_scale, decode);
  EXPECT_EQ(rows.measured, x.Amax());
  const uint8_t* bytes = static_cast<const uint8_t*>(rows.form.values);
  for (int64_t row = 0; row < 16; ++row) {
    for (int64_t block = 0; block < 4; ++block) {
      float largest = 0.0F;
      for (int64_t k = 0; k < 16; ++k) {
        largest = std::max(largest, std::fabs(x.At(row, block * 16 + k)));
      }
      const uint8_t scale = EncodeE4m3(largest * (encode * (1.0F / 6.0F)));
      ASSERT_EQ(rows.form.scales[SwizzledScaleOffset(row, block, 4)], scale);
      const float factor = 1.0F / (DecodeE4m3(scale) * decode);
      for (int64_t k = 0; k < 16; ++k) {
        const int64_t at = row * 64 + block * 16 + k;
        const int code = bytes[at / 2] >> (at % 2 * 4) & 15;
        ASSERT_EQ(code, static_cast<int>(EncodeE2m1(x.data[at] * factor)));
      }
    }
  }
  // What pads the scales to 128 rows is zero.
  EXPECT_EQ(rows.form.scales[SwizzledScaleOffset(16, 0, 4)], 0);
}

TEST(BlockQuantize, SquareBlocks_RowsAndColumnsDecodeAlike) {
  for (const BlockLayoutRow& layout : kBlockLayouts) {
    if (!layout.square) {
      continue;
    }
    Matrix x(160, 96);
    FillNormalMatrix(x, 2);
    Owned rows(layout.layout, 160, 96, x.Amax());
    Owned columns(layout.layout, 96, 160, x.Amax());
    BlockQuantView quant = RowsOf(rows);
    quant.columns = columns.form;
    quant.square = true;
    float amax = 0.0F;
    quant.amax = &amax;
    ASSERT_TRUE(QuantizeMatrix(x, quant).ok());
    const std::vector<double> by_rows = rows.Decoded();
    const std::vector<double> by_columns = columns.Decoded();
    for (int64_t row = 0; row < 160; ++row) {
      for (int64_t col = 0; col < 96; ++col) {
        ASSERT_EQ(by_rows[Index(row * 96 + col)], by_columns[Index(col * 160 + row)]);
      }
    }
    EXPECT_EQ(amax, x.Amax());
    EXPECT_LT(RelativeSquareError(x, by_rows), 0.015);
  }
}

// The second block of a line is shorter; lines are padded to a multiple of four.
TEST(BlockQuantize, Fp8Block_ScalesArePowersOfTwoAboveTheirBlocks) {
  Matrix x(5, 160);
  FillNormalMatrix(x, 12);
  Owned rows(BlockLayout::kFp8Block, 5, 160, 0.0F);
  ASSERT_TRUE(QuantizeMatrix(x, RowsOf(rows)).ok());
  const std::vector<double> got = rows.Decoded();
  for (int64_t block = 0; block < 2; ++block) {
    for (int64_t row = 0; row < 8; ++row) {
      float scale = -1.0F;
      std::memcpy(&scale, rows.form.scales + 4 * (block * 8 + row), sizeof(scale));
      if (row >= 5) {
        EXPECT_EQ(scale, 0.0F);
        continue;
      }
      double largest = 0.0;
      for (int64_t col = block * 128; col < std::min<int64_t>(block * 128 + 128, 160); ++col) {
        largest = std::max(largest, std::fabs(double{x.At(row, col)}));
        EXPECT_NEAR(got[Index(row * 160 + col)], double{x.At(row, col)},
                    std::fabs(double{x.At(row, col)}) / 16 + double{scale} * 0x1p-10);
      }
      EXPECT_EQ(double{scale}, std::exp2(std::ceil(std::log2(largest / 448))));
    }
  }
}

TEST(BlockQuantize, FourOverSix_LowersTheError) {
  Matrix x(256, 512);
  FillNormalMatrix(x, 3);
  Owned nearest(BlockLayout::kNvfp4, 256, 512, x.Amax());
  Owned chosen(BlockLayout::kNvfp4, 256, 512, x.Amax());
  chosen.form.rounding = Rounding::kFourOverSix;
  ASSERT_TRUE(QuantizeMatrix(x, RowsOf(nearest)).ok());
  ASSERT_TRUE(QuantizeMatrix(x, RowsOf(chosen)).ok());
  const double plain = RelativeSquareError(x, nearest.Decoded());
  const double better = RelativeSquareError(x, chosen.Decoded());
  std::printf("relative square error: nearest %.5f, four over six %.5f\n", plain, better);
  EXPECT_NEAR(plain, 0.00905, 0.0004);
  EXPECT_NEAR(better, 0.00756, 0.0004);
}

TEST(BlockQuantize, Fp8_NothingSaturates) {
  for (const BlockLayoutRow& layout : kBlockLayouts) {
    if (layout.fp4) {
      continue;
    }
    for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
      Matrix x(128, 256);
      FillNormalMatrix(x, 4);
      Owned rows(layout.layout, 128, 256, 0.0F, dtype);
      Owned columns(layout.layout, 256, 128, 0.0F, dtype);
      BlockQuantView quant = RowsOf(rows);
      quant.columns = columns.form;
      ASSERT_TRUE(QuantizeMatrix(x, quant).ok());
      EXPECT_EQ(rows.counts[0] + columns.counts[0], 0U);
      EXPECT_LT(RelativeSquareError(x, rows.Decoded()), dtype == DType::kE4M3 ? 0.001 : 0.004);
      const std::vector<double> back = columns.Decoded();
      for (int64_t col = 0; col < 256; ++col) {
        ASSERT_NEAR(back[Index(col * 128)], double{x.At(0, col)},
                    0.126 * std::fabs(double{x.At(0, col)}) + 1e-4);
      }
    }
  }
}

// 31,250 draws of each of 32 elements: each mean within 4 standard errors.
TEST(BlockQuantize, Stochastic_MillionDraws_EveryMeanIsItsValue) {
  constexpr int64_t kDraws = 31250;
  Matrix x(kDraws, 32);
  for (int64_t k = 0; k < 32; ++k) {
    const RngKey key = {23, RngPurpose::kTest, 0, 0, 0};
    const float value = k % 16 == 0 ? 3.0F : static_cast<float>(2.9 * RngUniform(key, Index(k)));
    for (int64_t row = 0; row < kDraws; ++row) {
      x.At(row, k) = k % 3 == 0 ? -value : value;
    }
  }
  for (const BlockLayoutRow& layout : kBlockLayouts) {
    Owned rows(layout.layout, kDraws, 32, 3.0F);
    rows.form.rounding = Rounding::kStochastic;
    ASSERT_TRUE(QuantizeMatrix(x, RowsOf(rows)).ok());
    const std::vector<double> got = rows.Decoded();
    for (int64_t k = 0; k < 32; ++k) {
      double sum = 0.0;
      double squares = 0.0;
      bool zeros = true;
      for (int64_t row = 0; row < kDraws; ++row) {
        const double error = got[Index(row * 32 + k)] - double{x.At(row, k)};
        sum += error;
        squares += error * error;
        zeros &= got[Index(row * 32 + k)] == 0.0;
      }
      const double n = static_cast<double>(kDraws);
      ASSERT_LE(std::fabs(sum / n), 4.0 * std::sqrt(squares / n / n) + 1e-6) << k;
      ASSERT_FALSE(zeros) << k;
    }
  }
}

// On normal data: the bias by clipping of each way, as block_quant.h states it.
TEST(BlockQuantize, Stochastic_MillionNormals_BiasIsAsStated) {
  Matrix x(1024, 1024);
  FillNormalMatrix(x, 6);
  const auto measure = [&](Rounding rounding) {
    Owned rows(BlockLayout::kNvfp4, 1024, 1024, x.Amax());
    rows.form.rounding = rounding;
    EXPECT_TRUE(QuantizeMatrix(x, RowsOf(rows)).ok());
    const std::vector<double> got = rows.Decoded();
    std::printf(
        "rounding %d: slope %.5f, relative square error %.5f, saturated %.4f, "
        "underflowed %.4f\n",
        static_cast<int>(rounding), Slope(x, got), RelativeSquareError(x, got),
        static_cast<double>(rows.counts[0]) / 1048576,
        static_cast<double>(rows.counts[1]) / 1048576);
    return Slope(x, got);
  };
  // The standard error of the slope is sqrt(0.0235 / 2^20) = 1.5e-4.
  EXPECT_NEAR(measure(Rounding::kStochastic), 0.9968, 6e-4);
  EXPECT_NEAR(measure(Rounding::kStochasticUnclipped), 1.0, 1e-3);
}

// Back through the transform: q H diag(signs).
void Undo(const SignWords& signs, std::vector<double>& v, int64_t lines, int64_t extent) {
  for (int64_t begin = 0; begin < lines * extent; begin += 128) {
    double* g = v.data() + begin;
    for (int half = 1; half < 128; half *= 2) {
      for (int i = 0; i < 128; ++i) {
        if ((i & half) == 0) {
          const double low = g[i];
          const double high = g[i + half];
          g[i] = low + high;
          g[i + half] = low - high;
        }
      }
    }
    for (int i = 0; i < 128; ++i) {
      const bool negative = (signs.words[i / 32] >> (i % 32) & 1) != 0;
      g[i] *= (negative ? -1.0 : 1.0) / std::sqrt(128.0);
    }
  }
}

// A million draws over 128 steps' signs of 64 x 128 values.
TEST(BlockQuantize, Eden_MillionDraws_UnbiasedOverSteps) {
  Matrix x(64, 128);
  FillNormalMatrix(x, 7);
  constexpr int kSteps = 128;
  const int64_t count = x.rows * x.cols;
  std::vector<double> sum(Index(count), 0.0);
  std::vector<double> squares(Index(count), 0.0);
  double slope = 0.0;
  double error = 0.0;
  for (uint32_t step = 0; step < kSteps; ++step) {
    Owned rows(BlockLayout::kNvfp4, 64, 128, 5.5F);
    rows.form.rounding = Rounding::kEden;
    rows.form.hadamard = 128;
    rows.form.signs = HadamardSigns::kSeeded;
    BlockQuantView quant = RowsOf(rows);
    quant.key.step = step;
    ASSERT_TRUE(QuantizeMatrix(x, quant).ok());
    std::vector<double> got = rows.Decoded();
    Undo(SignsOf(HadamardSigns::kSeeded, quant.key.seed, step, 0), got, 64, 128);
    slope += Slope(x, got) / kSteps;
    error += RelativeSquareError(x, got) / kSteps;
    for (int64_t i = 0; i < count; ++i) {
      const double off = got[Index(i)] - double{x.data[i]};
      sum[Index(i)] += off;
      squares[Index(i)] += off * off;
    }
  }
  std::printf("EDEN: slope %.5f, relative square error %.5f\n", slope, error);
  EXPECT_NEAR(slope, 1.0, 1.5e-3);
  EXPECT_NEAR(error, 0.0097, 0.0008);
  double total = 0.0;
  double total_squares = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double mean = sum[Index(i)] / kSteps;
    const double deviation = std::sqrt(squares[Index(i)]) / kSteps;
    // 8192 means: 5.5 standard errors would be one in thirty million.
    ASSERT_LT(std::fabs(mean), 5.5 * deviation + 1.5e-3 * std::fabs(x.data[i])) << i;
    total += sum[Index(i)];
    total_squares += squares[Index(i)];
  }
  EXPECT_LT(std::fabs(total), 4.0 * std::sqrt(total_squares));
}

// sum over k of both transformed operands is the product of the plain ones.
TEST(BlockQuantize, Hadamard_CancelsInAProduct) {
  for (const int16_t hadamard : {int16_t{16}, int16_t{32}, int16_t{64}, int16_t{128}}) {
    Matrix x(1, 256);
    FillNormalMatrix(x, 8);
    Owned a(BlockLayout::kMxfp8, 1, 256, 0.0F);
    a.form.hadamard = hadamard;
    a.form.signs = HadamardSigns::kSeeded;
    ASSERT_TRUE(QuantizeMatrix(x, RowsOf(a)).ok());
    double square = 0.0;
    double want = 0.0;
    for (const double v : a.Decoded()) {
      square += v * v;
    }
    for (int64_t i = 0; i < 256; ++i) {
      want += double{x.data[i]} * double{x.data[i]};
    }
    EXPECT_NEAR(square, want, 0.02 * want) << hadamard;
    EXPECT_NE(a.measured, x.Amax());
  }
}

TEST(BlockQuantize, NotFiniteBlock_IsNanAndNothingElseIs) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    for (const BlockLayoutRow& layout : kBlockLayouts) {
      Matrix x(32, 64);
      FillNormalMatrix(x, 9);
      x.At(3, 40) = bad;
      Owned rows(layout.layout, 32, 64, 4.0F);
      Owned columns(layout.layout, 64, 32, 4.0F);
      BlockQuantView quant = RowsOf(rows);
      quant.columns = columns.form;
      ASSERT_TRUE(QuantizeMatrix(x, quant).ok());
      const std::vector<double> got = rows.Decoded();
      const int64_t block = layout.length;
      for (int64_t i = 0; i < int64_t{32} * 64; ++i) {
        const bool inside = i / 64 == 3 && i % 64 / block == 40 / block;
        ASSERT_EQ(std::isnan(got[Index(i)]), inside) << i;
      }
      EXPECT_TRUE(std::isnan(columns.Decoded()[40 * 32 + 3]));
      EXPECT_EQ(std::isnan(rows.measured), std::isnan(bad));
    }
  }
}

TEST(BlockQuantize, AmaxTooSmall_SaturatesAndCounts) {
  Matrix x(64, 256);
  FillNormalMatrix(x, 10);
  Owned good(BlockLayout::kNvfp4, 64, 256, x.Amax());
  Owned small(BlockLayout::kNvfp4, 64, 256, x.Amax() / 8);
  Owned large(BlockLayout::kNvfp4, 64, 256, x.Amax() * 1024);
  for (Owned* rows : {&good, &small, &large}) {
    ASSERT_TRUE(QuantizeMatrix(x, RowsOf(*rows)).ok());
  }
  const double error = RelativeSquareError(x, good.Decoded());
  EXPECT_GT(small.counts[0], 10 * good.counts[0]);
  EXPECT_GT(RelativeSquareError(x, small.Decoded()), 10 * error);
  const double largest = double{x.Amax()} / 8;
  for (const double v : small.Decoded()) {
    ASSERT_LE(std::fabs(v), largest * (1 + 1e-6));
  }
  EXPECT_LT(RelativeSquareError(x, large.Decoded()), 1.2 * error);
}

TEST(BlockQuantize, MeasuredAlone_NeedsNoMemory) {
  Matrix x(48, 48);
  FillNormalMatrix(x, 11);
  float rows = 0.0F;
  float columns = 0.0F;
  BlockQuantView quant;
  quant.rows.measured = &rows;
  quant.columns.measured = &columns;
  quant.columns.hadamard = 16;
  ASSERT_TRUE(QuantizeMatrix(x, quant).ok());
  EXPECT_EQ(rows, x.Amax());
  EXPECT_GT(columns, 0.5F * x.Amax());
  EXPECT_NE(columns, x.Amax());
}

TEST(UpdateBlockAmax, UsableMagnitudes_GetTheMargin) {
  float measured[] = {3.0F, 0.0F, kInf, std::nanf(""), 3e38F};
  float amax[] = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
  UpdateBlockAmaxArgs args;
  args.n = 5;
  args.measured = measured;
  args.amax = amax;
  args.margin = 4.0F;
  ASSERT_TRUE(UpdateBlockAmax(Exec(), args).ok());
  EXPECT_EQ(amax[0], 12.0F);
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(amax[i], 1.0F);
    EXPECT_EQ(measured[i], 0.0F);
  }
  const int32_t skip = 1;
  args.skip = &skip;
  measured[0] = 9.0F;
  ASSERT_TRUE(UpdateBlockAmax(Exec(), args).ok());
  EXPECT_EQ(amax[0], 12.0F);
  EXPECT_EQ(measured[0], 0.0F);
  args.margin = 3.0F;
  EXPECT_EQ(UpdateBlockAmax(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

TEST(BlockQuantize, UndefinedCombinations_AreRefused) {
  Matrix x(32, 64);
  const auto code = [&](const auto& change) {
    Owned rows(BlockLayout::kNvfp4, 32, 64, 1.0F);
    BlockQuantView quant = RowsOf(rows);
    change(quant);
    return QuantizeMatrix(x, quant).code();
  };
  const auto refused = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](BlockQuantView&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(code([](BlockQuantView& q) { q.rows.hadamard = 8; }), refused);
  EXPECT_EQ(code([](BlockQuantView& q) { q.rows.hadamard = 128; }), refused);
  EXPECT_EQ(code([](BlockQuantView& q) { q.rows.amax = nullptr; }), refused);
  EXPECT_EQ(code([](BlockQuantView& q) { q.rows.measured = const_cast<float*>(q.rows.amax); }),
            refused);
  EXPECT_EQ(code([](BlockQuantView& q) { q.rows.scales = nullptr; }), refused);
  EXPECT_EQ(code([](BlockQuantView& q) { q.rows.rounding = Rounding::kEden; }), refused);
  EXPECT_EQ(code([](BlockQuantView& q) { q.dtype = DType::kE4M3; }), refused);
  EXPECT_EQ(code([](BlockQuantView& q) { q.dtype = DType::kBF16; }), refused);
  EXPECT_EQ(code([](BlockQuantView& q) {
              q.square = true;
              q.rows.hadamard = 16;
            }),
            refused);
}

}  // namespace
}  // namespace hearth::kernels
