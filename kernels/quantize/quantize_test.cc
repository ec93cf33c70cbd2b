#include "kernels/quantize/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A tensor and everything that Quantize can write of it.
struct Data {
  int64_t rows;
  int64_t cols;
  std::vector<float> x = std::vector<float>(static_cast<size_t>(rows * cols));
  std::vector<uint8_t> by_rows = std::vector<uint8_t>(x.size());
  std::vector<uint8_t> by_columns = std::vector<uint8_t>(x.size());
  float scale = 12.5F;
  float amax = 0.0F;

  Data(int64_t rows_in, int64_t cols_in) : rows(rows_in), cols(cols_in) {
    FillNormal({1, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 10.0, x.data(), rows * cols);
  }
  QuantizeTensor Tensor(DType dtype) {
    return {View(x.data(), {rows, cols}),
            {dtype, by_rows.data(), by_columns.data(), &scale, &amax}};
  }
};

absl::Status RunQuantize(const QuantizeTensor& tensor,
                         uint64_t* counter = nullptr,
                         const int32_t* skip = nullptr) {
  Exec exec;
  exec.threads = 2;
  return Quantize(exec, {{&tensor, 1}, counter, skip});
}

TEST(Quantize, RowsColumnsAndAmax_AreTheFormatsBits) {
  for (DType dtype : {DType::kE4M3, DType::kE5M2}) {
    Data data(48, 1040);
    ASSERT_TRUE(RunQuantize(data.Tensor(dtype)).ok());
    float amax = 0.0F;
    for (int64_t r = 0; r < data.rows; ++r) {
      for (int64_t c = 0; c < data.cols; ++c) {
        const size_t at = static_cast<size_t>(r * data.cols + c);
        const float scaled = data.x[at] * data.scale;
        const uint8_t want = dtype == DType::kE4M3 ? EncodeE4m3(scaled) : EncodeE5m2(scaled);
        ASSERT_EQ(data.by_rows[at], want);
        ASSERT_EQ(data.by_columns[static_cast<size_t>(c * data.rows + r)], want);
        amax = std::max(amax, std::fabs(data.x[at]));
      }
    }
    EXPECT_EQ(data.amax, amax);
  }
}

TEST(Quantize, ValuesBeyondTheFormat_Saturate) {
  Data data(1, 4);
  data.x = {1e30F, -kInf, kNan, -0.0F};
  QuantizeTensor tensor = data.Tensor(DType::kE4M3);
  tensor.quant.columns = nullptr;
  ASSERT_TRUE(RunQuantize(tensor).ok());
  EXPECT_EQ(data.by_rows, (std::vector<uint8_t>{0x7E, 0xFE, 0x7F, 0x80}));
  EXPECT_TRUE(std::isnan(data.amax));
  tensor.quant.dtype = DType::kE5M2;
  ASSERT_TRUE(RunQuantize(tensor).ok());
  EXPECT_EQ(data.by_rows, (std::vector<uint8_t>{0x7B, 0xFB, 0x7F, 0x80}));
}

TEST(Quantize, Amax_IsRaisedNeverLowered) {
  Data data(3, 5);
  QuantizeTensor tensor = data.Tensor(DType::kE4M3);
  tensor.quant.rows = nullptr;
  tensor.quant.columns = nullptr;
  data.amax = 1e6F;
  ASSERT_TRUE(RunQuantize(tensor).ok());
  EXPECT_EQ(data.amax, 1e6F);
  data.x[7] = -kInf;
  ASSERT_TRUE(RunQuantize(tensor).ok());
  EXPECT_EQ(data.amax, kInf);
  data.x[2] = kNan;
  ASSERT_TRUE(RunQuantize(tensor).ok());
  EXPECT_TRUE(std::isnan(data.amax));
}

TEST(Quantize, Counter_CountsTensorsWithValues) {
  Data data(16, 16);
  const QuantizeTensor whole = data.Tensor(DType::kE4M3);
  QuantizeTensor amax_only = whole;
  amax_only.quant.rows = nullptr;
  amax_only.quant.columns = nullptr;
  const std::vector<QuantizeTensor> tensors = {whole, amax_only, whole};
  uint64_t counter = 40;
  ASSERT_TRUE(Quantize(Exec(), {tensors, &counter, nullptr}).ok());
  EXPECT_EQ(counter, 42U);
}

TEST(Quantize, Skip_WritesNothing) {
  Data data(16, 16);
  const int32_t skip = 1;
  uint64_t counter = 0;
  ASSERT_TRUE(RunQuantize(data.Tensor(DType::kE4M3), &counter, &skip).ok());
  EXPECT_EQ(data.by_rows, std::vector<uint8_t>(256));
  EXPECT_EQ(data.by_columns, std::vector<uint8_t>(256));
  EXPECT_EQ(data.amax, 0.0F);
  EXPECT_EQ(counter, 0U);
  const int32_t go = 0;
  ASSERT_TRUE(RunQuantize(data.Tensor(DType::kE4M3), &counter, &go).ok());
  EXPECT_EQ(counter, 1U);
}

TEST(Quantize, BadArguments_AreRefused) {
  Data data(16, 16);
  QuantizeTensor tensor = data.Tensor(DType::kBF16);
  EXPECT_EQ(RunQuantize(tensor).code(), absl::StatusCode::kInvalidArgument);
  tensor = data.Tensor(DType::kE4M3);
  tensor.quant.scale = nullptr;
  EXPECT_EQ(RunQuantize(tensor).code(), absl::StatusCode::kInvalidArgument);
  tensor = data.Tensor(DType::kE4M3);
  tensor.x = View(data.x.data(), {8, 32});
  EXPECT_EQ(RunQuantize(tensor).code(), absl::StatusCode::kInvalidArgument);
  tensor.x = TensorView(data.x.data(), DType::kBF16, {16, 16});
  EXPECT_EQ(RunQuantize(tensor).code(), absl::StatusCode::kUnimplemented);
}

struct Scales {
  std::vector<float> amax;
  std::vector<float> scale = std::vector<float>(amax.size(), 3.0F);
  std::vector<float> inverse = std::vector<float>(amax.size() * kScaleInverseStride, 0.0F);
  std::vector<DType> dtypes = std::vector<DType>(amax.size(), DType::kE4M3);
  std::vector<float> ring;
  int64_t cursor = 0;

  explicit Scales(std::vector<float> amax_in, int64_t history = 0)
      : amax(std::move(amax_in)), ring(amax.size() * static_cast<size_t>(history)) {}
  absl::Status Update(const int32_t* skip = nullptr) {
    UpdateScalesArgs args;
    args.n = static_cast<int64_t>(amax.size());
    args.history = static_cast<int64_t>(ring.size() / amax.size());
    args.amax = amax.data();
    args.ring = ring.data();
    args.scale = scale.data();
    args.scale_inverse = inverse.data();
    args.dtypes = dtypes;
    args.cursor = &cursor;
    args.skip = skip;
    return UpdateScales(Exec(), args);
  }
};

TEST(UpdateScales, Current_UselessMagnitudesKeepTheScale) {
  Scales scales({7.0F, 0.0F, kInf, kNan, 1e-40F, 7.0F});
  scales.dtypes[5] = DType::kE5M2;
  ASSERT_TRUE(scales.Update().ok());
  EXPECT_EQ(scales.scale, (std::vector<float>{64.0F, 3.0F, 3.0F, 3.0F, FLT_MAX, 8192.0F}));
  for (size_t i = 0; i < scales.scale.size(); ++i) {
    EXPECT_EQ(scales.inverse[i * kScaleInverseStride], 1.0F / scales.scale[i]);
  }
  EXPECT_EQ(scales.amax[0], 7.0F);
  EXPECT_EQ(scales.cursor, 0);
}

TEST(UpdateScales, Delayed_LargestOfTheLastHistoryUpdatesCounts) {
  Scales scales({0.0F}, 3);
  const std::vector<float> amaxes = {7.0F, 14.0F, 3.5F, 1.75F, 0.875F, 0.0F, 0.0F, 0.0F};
  const std::vector<float> largest = {7.0F, 14.0F, 14.0F, 14.0F, 3.5F, 1.75F, 0.875F, 0.875F};
  for (size_t i = 0; i < amaxes.size(); ++i) {
    scales.amax[0] = amaxes[i];
    ASSERT_TRUE(scales.Update().ok());
    EXPECT_EQ(scales.scale[0], 448.0F / largest[i]) << i;
    EXPECT_EQ(scales.amax[0], 0.0F);
  }
  EXPECT_EQ(scales.cursor, 8);
}

TEST(UpdateScales, Skip_OnlyForgetsTheMagnitude) {
  Scales scales({7.0F}, 2);
  const int32_t skip = 1;
  ASSERT_TRUE(scales.Update(&skip).ok());
  EXPECT_EQ(scales.amax[0], 0.0F);
  EXPECT_EQ(scales.scale[0], 3.0F);
  EXPECT_EQ(scales.inverse[0], 0.0F);
  EXPECT_EQ(scales.ring, (std::vector<float>{0.0F, 0.0F}));
  EXPECT_EQ(scales.cursor, 0);
}

TEST(UpdateScales, BadArguments_AreRefused) {
  Scales scales({7.0F});
  scales.dtypes[0] = DType::kBF16;
  EXPECT_EQ(scales.Update().code(), absl::StatusCode::kInvalidArgument);
  scales.dtypes.clear();
  EXPECT_EQ(scales.Update().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
