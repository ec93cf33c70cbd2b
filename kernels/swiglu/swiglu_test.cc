#include "kernels/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/core/formats.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kFfn = 700;  // more than one piece of a row

std::vector<float> Wave(int64_t count, float step) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 3.0F * std::sin(step * static_cast<float>(i));
  }
  return values;
}

// What QuantView promises of a plain output.
void ExpectQuantised(const std::vector<float>& plain,
                     int64_t cols,
                     const std::vector<uint8_t>& rows,
                     const std::vector<uint8_t>& columns,
                     float scale,
                     float amax,
                     uint8_t (*encode)(float)) {
  float largest = 0.0F;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const float v = plain[static_cast<size_t>(r * cols + c)];
      largest = std::max(largest, std::fabs(v));
      ASSERT_EQ(rows[static_cast<size_t>(r * cols + c)], encode(v * scale));
      ASSERT_EQ(columns[static_cast<size_t>(c * kRows + r)], encode(v * scale));
    }
  }
  EXPECT_EQ(amax, largest);
}

TEST(SwigluForward, QuantisedAlone_SameBitsAsOfThePlainOutput) {
  const std::vector<float> gate_up = Wave(kRows * 2 * kFfn, 0.37F);
  std::vector<float> y(kRows * kFfn);
  SwigluForwardArgs args;
  args.gate_up = View(gate_up.data(), {kRows, 2 * kFfn});
  args.y = View(y.data(), {kRows, kFfn});
  args.round_y = DType::kBF16;
  ASSERT_TRUE(SwigluForward(Exec(), args).ok());
  std::vector<uint8_t> rows(y.size());
  std::vector<uint8_t> columns(y.size());
  const float scale = 30.0F;
  float amax = 0.0F;
  args.y = TensorView();
  args.y_quant = {DType::kE4M3, rows.data(), columns.data(), &scale, &amax};
  ASSERT_TRUE(SwigluForward(Exec(), args).ok());
  ExpectQuantised(y, kFfn, rows, columns, scale, amax, EncodeE4m3);
}

TEST(SwigluBackward, InPlaceAndQuantised_SameBitsAsApart) {
  std::vector<float> gate_up = Wave(kRows * 2 * kFfn, 0.37F);
  const std::vector<float> dy = Wave(kRows * kFfn, 0.11F);
  std::vector<float> expected(gate_up.size());
  SwigluBackwardArgs args;
  args.dy = View(dy.data(), {kRows, kFfn});
  args.gate_up = View(gate_up.data(), {kRows, 2 * kFfn});
  args.d_gate_up = View(expected.data(), {kRows, 2 * kFfn});
  args.round_d_gate_up = DType::kBF16;
  ASSERT_TRUE(SwigluBackward(Exec(), args).ok());
  std::vector<uint8_t> rows(gate_up.size());
  std::vector<uint8_t> columns(gate_up.size());
  const float scale = 100.0F;
  float amax = 0.0F;
  args.d_gate_up = args.gate_up;
  args.d_gate_up_quant = {DType::kE5M2, rows.data(), columns.data(), &scale, &amax};
  ASSERT_TRUE(SwigluBackward(Exec(), args).ok());
  EXPECT_EQ(gate_up, expected);
  ExpectQuantised(expected, 2 * kFfn, rows, columns, scale, amax, EncodeE5m2);
}

TEST(SwigluForward, NoOutputAtAll_IsRefused) {
  const std::vector<float> gate_up(8);
  float amax = 0.0F;
  SwigluForwardArgs args;
  args.gate_up = View(gate_up.data(), {2, 4});
  args.y_quant.amax = &amax;
  EXPECT_EQ(SwigluForward(Exec(), args).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
