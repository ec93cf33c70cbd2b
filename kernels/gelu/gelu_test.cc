#include "kernels/gelu/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/core/formats.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 530;  // more than one piece of a row

struct Operands {
  std::vector<float> x, dy, bias, plain;
  std::vector<uint8_t> rows, columns;

  Operands()
      : x(kRows * kCols),
        dy(x.size()),
        bias(kCols),
        plain(x.size()),
        rows(x.size()),
        columns(x.size()) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = 4.0F * std::sin(0.37F * static_cast<float>(i));
      dy[i] = std::cos(0.11F * static_cast<float>(i));
    }
    for (size_t i = 0; i < bias.size(); ++i) {
      bias[i] = 0.001F * static_cast<float>(i);
    }
  }

  void ExpectQuantised(float scale, float amax, uint8_t (*encode)(float)) const {
    float largest = 0.0F;
    for (size_t i = 0; i < plain.size(); ++i) {
      largest = std::max(largest, std::fabs(plain[i]));
      const uint8_t code = encode(plain[i] * scale);
      ASSERT_EQ(rows[i], code);
      ASSERT_EQ(columns[i % kCols * kRows + i / kCols], code);
    }
    EXPECT_EQ(amax, largest);
  }
};

TEST(GeluForward, QuantisedAlone_SameBitsAsOfThePlainOutput) {
  for (const Activation kind : {Activation::kGelu, Activation::kGeluTanh}) {
    Operands o;
    const float scale = 20.0F;
    float amax = 0.0F;
    GeluForwardArgs args;
    args.x = View(o.x.data(), {kRows, kCols});
    args.bias = View(o.bias.data(), {kCols});
    args.y = View(o.plain.data(), {kRows, kCols});
    args.kind = kind;
    args.round_y = DType::kBF16;
    ASSERT_TRUE(GeluForward(Exec(), args).ok());
    args.y = TensorView();
    args.y_quant = {DType::kE4M3, o.rows.data(), o.columns.data(), &scale, &amax};
    ASSERT_TRUE(GeluForward(Exec(), args).ok());
    o.ExpectQuantised(scale, amax, EncodeE4m3);
  }
}

TEST(GeluBackward, QuantisedAlone_SameBitsAsOfThePlainOutput) {
  Operands o;
  const float scale = 500.0F;
  float amax = 0.0F;
  GeluBackwardArgs args;
  args.dy = View(o.dy.data(), {kRows, kCols});
  args.x = View(o.x.data(), {kRows, kCols});
  args.bias = View(o.bias.data(), {kCols});
  args.dx = View(o.plain.data(), {kRows, kCols});
  args.round_dx = DType::kBF16;
  ASSERT_TRUE(GeluBackward(Exec(), args).ok());
  args.dx = TensorView();
  args.dx_quant = {DType::kE5M2, o.rows.data(), o.columns.data(), &scale, &amax};
  ASSERT_TRUE(GeluBackward(Exec(), args).ok());
  o.ExpectQuantised(scale, amax, EncodeE5m2);
}

// There are no kernels for it: no recipe that quantises stores fp32.
TEST(Gelu, QuantisedBesideFp32OnAGpu_IsRefused) {
  Operands o;
  Exec gpu;
  gpu.device = Device::kCuda;
  const float scale = 20.0F;
  float amax = 0.0F;
  GeluForwardArgs args;
  args.x = View(o.x.data(), {kRows, kCols});
  args.y = View(o.plain.data(), {kRows, kCols});
  const auto refused = [&gpu](const auto& run) {
    const absl::Status status = run(gpu);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  const auto forward = [&args](const Exec& exec) { return GeluForward(exec, args); };
  args.y_quant = {DType::kE4M3, o.rows.data(), nullptr, &scale, &amax};
  EXPECT_EQ(refused(forward),
            "gelu: quantised or kept forms of fp32 tensors on a GPU; only bf16 tensors have them");
  GeluBackwardArgs back;
  back.dy = View(o.dy.data(), {kRows, kCols});
  back.x = args.x;
  back.dx = args.y;
  back.dx_quant = {DType::kE5M2, o.rows.data(), nullptr, &scale, &amax};
  EXPECT_NE(refused([&back](const Exec& exec) { return GeluBackward(exec, back); }).find("fp32"),
            std::string::npos);
}

}  // namespace
}  // namespace hearth::kernels
