#include "kernels/gated_gemm/gated_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hearth::kernels {
namespace {

constexpr int64_t kRows = 9;
constexpr int64_t kDepth = 12;
constexpr int64_t kFfn = 21;

std::vector<float> Wave(int64_t count, float step) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(step * static_cast<float>(i));
  }
  return values;
}

TEST(GatedGemmForward, OnTheCpu_SameBitsAsTwoCalls) {
  const std::vector<float> x = Wave(kRows * kDepth, 0.37F);
  const std::vector<float> w = Wave(2 * kFfn * kDepth, 0.11F);
  std::vector<float> gate_up(kRows * 2 * kFfn), y(kRows * kFfn);
  GatedGemmForwardArgs args;
  args.product.a = View(x.data(), {kRows, kDepth});
  args.product.b = View(w.data(), {2 * kFfn, kDepth});
  args.product.c = View(gate_up.data(), {kRows, 2 * kFfn});
  args.product.transpose_b = true;
  args.product.round_c = DType::kBF16;
  args.activation.gate_up = args.product.c;
  args.activation.y = View(y.data(), {kRows, kFfn});
  args.activation.round_y = DType::kBF16;
  ASSERT_TRUE(GatedGemmForward(Exec(), args).ok());
  const std::vector<float> both = y;

  ASSERT_TRUE(Gemm(Exec(), args.product).ok());
  ASSERT_TRUE(SwigluForward(Exec(), args.activation).ok());
  EXPECT_EQ(both, y);
}

TEST(GatedGemmBackward, OnTheCpu_SameBitsAsTwoCalls) {
  const std::vector<float> d_out = Wave(kRows * kDepth, 0.37F);
  const std::vector<float> w = Wave(kDepth * kFfn, 0.11F);
  const std::vector<float> gate_up = Wave(kRows * 2 * kFfn, 0.23F);
  std::vector<float> dy(kRows * kFfn), gradient(kRows * 2 * kFfn);
  GatedGemmBackwardArgs args;
  args.product.a = View(d_out.data(), {kRows, kDepth});
  args.product.b = View(w.data(), {kDepth, kFfn});
  args.product.c = View(dy.data(), {kRows, kFfn});
  args.activation.dy = args.product.c;
  args.activation.gate_up = View(gate_up.data(), {kRows, 2 * kFfn});
  args.activation.d_gate_up = View(gradient.data(), {kRows, 2 * kFfn});
  ASSERT_TRUE(GatedGemmBackward(Exec(), args).ok());
  const std::vector<float> both = gradient;

  ASSERT_TRUE(Gemm(Exec(), args.product).ok());
  ASSERT_TRUE(SwigluBackward(Exec(), args.activation).ok());
  EXPECT_EQ(both, gradient);

  args.product.c = View(gradient.data(), {kRows, kFfn});
  EXPECT_EQ(CanImplement(args).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
