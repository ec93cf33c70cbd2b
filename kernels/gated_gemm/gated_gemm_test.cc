#include "kernels/gated_gemm/gated_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/gated_gemm/weight_boxes.h"

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

// The bytes of a box at these coordinates, in the order in which TMA writes them to shared memory
// (without the swizzle): the first dimension is the innermost. Outside of the tensor all is 0.
std::vector<uint8_t> CopyBox(const cuda::TensorBoxes& boxes, const std::vector<int64_t>& at) {
  std::vector<uint8_t> copied;
  std::vector<int64_t> index(static_cast<size_t>(boxes.rank), 0);
  const auto size = static_cast<size_t>(boxes.rank);
  for (;;) {
    int64_t offset = 0;
    bool inside = true;
    for (size_t d = 0; d < size; ++d) {
      const int64_t i = at[d] + index[d];
      inside &= i < boxes.extents[d];
      offset += i * (d == 0 ? 1 : boxes.pitches[d - 1]);
    }
    copied.push_back(inside ? static_cast<const uint8_t*>(boxes.data)[offset] : uint8_t{0});
    size_t d = 0;
    while (d < size && ++index[d] == int64_t{boxes.box[d]}) {
      index[d++] = 0;
    }
    if (d == size) {
      return copied;
    }
  }
}

TEST(WeightBoxes, ABox_GivesEachThreadColumnsInARow) {
  using cuda::gated::kThreadCols;
  using cuda::gated::kWeightBoxDepth;
  using cuda::gated::kWeightBoxRows;
  constexpr int64_t kK = 144;  // the second stage is cut
  constexpr int64_t kF = 96;   // and so is the second box
  // Byte k of row r says both; rows count from 1.
  std::vector<uint8_t> weight(2 * kF * kK);
  for (int64_t r = 0; r < 2 * kF; ++r) {
    for (int64_t k = 0; k < kK; ++k) {
      weight[static_cast<size_t>(r * kK + k)] = static_cast<uint8_t>(k % 2 == 0 ? r + 1 : k);
    }
  }
  const cuda::TensorBoxes boxes = cuda::gated::WeightBoxes(weight.data(), kK, kF);
  for (const int64_t col : {int64_t{0}, int64_t{kWeightBoxRows}}) {
    for (const int64_t k0 : {int64_t{0}, int64_t{kWeightBoxDepth}}) {
      for (const int64_t half : {int64_t{0}, int64_t{1}}) {
        const std::vector<uint8_t> box = CopyBox(boxes, {k0, 0, col / kThreadCols, 0, half});
        ASSERT_EQ(box.size(), size_t{kWeightBoxRows * kWeightBoxDepth});
        for (int64_t lane = 0; lane < 4; ++lane) {
          for (int64_t i = 0; i < kThreadCols; ++i) {
            // Sum 4 (i / 2) + i % 2 of the thread is this column of the product (hopper.cuh).
            const int64_t n = 8 * (i / 2) + 2 * lane + i % 2;
            const int64_t want = col + kThreadCols * lane + i;
            for (int64_t k = 0; k < kWeightBoxDepth; ++k) {
              const bool inside = want < kF && k0 + k < kK;
              const int64_t value = (k0 + k) % 2 == 0 ? half * kF + want + 1 : k0 + k;
              ASSERT_EQ(box[static_cast<size_t>(n * kWeightBoxDepth + k)],
                        inside ? static_cast<uint8_t>(value) : 0)
                  << "column " << want << " of half " << half << ", k " << k0 + k;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
