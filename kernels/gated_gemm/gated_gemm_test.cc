#include "kernels/gated_gemm/gated_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

constexpr int64_t kBoxK = 144;  // the second stage is cut
constexpr int64_t kStage = cuda::gated::kWeightBoxDepth;

// A weight [rows, kBoxK] of which byte k of row r says both; rows count from 1.
uint8_t WeightByte(int64_t row, int64_t k) {
  return static_cast<uint8_t>(k % 2 == 0 ? row + 1 : k);
}
std::vector<uint8_t> MakeWeight(int64_t rows) {
  std::vector<uint8_t> weight;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < kBoxK; ++k) {
      weight.push_back(WeightByte(row, k));
    }
  }
  return weight;
}

// Empty, or which bytes of a tile are not where a thread expects them: it has `count` columns in a
// row, and the tile's first is row `first` of the weight, of which there are rows up to `end`.
std::string CompareTile(
    const std::vector<uint8_t>& tile, int64_t k0, int64_t count, int64_t first, int64_t end) {
  for (int64_t lane = 0; lane < 4; ++lane) {
    for (int64_t i = 0; i < count; ++i) {
      // Sum 4 (i / 2) + i % 2 of the thread is this column of the product (hopper.cuh).
      const int64_t n = 8 * (i / 2) + 2 * lane + i % 2;
      const int64_t row = first + count * lane + i;
      for (int64_t k = 0; k < kStage; ++k) {
        const bool inside = row < end && k0 + k < kBoxK;
        if (tile[static_cast<size_t>(n * kStage + k)] !=
            (inside ? WeightByte(row, k0 + k) : uint8_t{0})) {
          return absl::StrCat("row ", row, ", k ", k0 + k);
        }
      }
    }
  }
  return "";
}

// A box: half of a tile whose first column is a thread's `col / count`th times `count`.
std::vector<uint8_t> CopyHalf(
    const cuda::TensorBoxes& boxes, int64_t k0, int64_t col, int64_t count, int64_t half) {
  return CopyBox(boxes, {k0, 0, col / count, 0, half});
}

TEST(WeightBoxes, OfGateAndUp_GiveEachThreadColumnsInARow) {
  constexpr int64_t kF = 96;  // the second box is cut
  constexpr int64_t kCount = cuda::gated::kForwardThreadCols;
  const std::vector<uint8_t> weight = MakeWeight(2 * kF);
  const cuda::TensorBoxes boxes = cuda::gated::GateUpBoxes(weight.data(), kBoxK, kF);
  for (const int64_t col : {int64_t{0}, int64_t{cuda::gated::kWeightBoxRows}}) {
    for (const int64_t k0 : {int64_t{0}, kStage}) {
      for (const int64_t half : {int64_t{0}, int64_t{1}}) {
        const std::vector<uint8_t> box = CopyHalf(boxes, k0, col, kCount, half);
        ASSERT_EQ(box.size(), static_cast<size_t>(cuda::gated::kWeightBoxRows * kStage));
        EXPECT_EQ(CompareTile(box, k0, kCount, half * kF + col, (half + 1) * kF), "")
            << "box at column " << col << " of half " << half;
      }
    }
  }
}

TEST(WeightBoxes, OfTheDownProjection_GiveEachThreadColumnsInARow) {
  constexpr int64_t kF = 160;  // the second tile is cut
  constexpr int64_t kCols = cuda::gated::kGradientCols;
  constexpr int64_t kCount = kCols / cuda::gated::kThreadsOfRow;
  const std::vector<uint8_t> weight = MakeWeight(kF);
  const cuda::TensorBoxes boxes = cuda::gated::DownBoxes(weight.data(), kBoxK, kF);
  for (const int64_t col : {int64_t{0}, kCols}) {
    for (const int64_t k0 : {int64_t{0}, kStage}) {
      std::vector<uint8_t> tile = CopyHalf(boxes, k0, col, kCount, 0);
      const std::vector<uint8_t> rest = CopyHalf(boxes, k0, col, kCount, 1);
      tile.insert(tile.end(), rest.begin(), rest.end());
      ASSERT_EQ(tile.size(), static_cast<size_t>(kCols * kStage));
      EXPECT_EQ(CompareTile(tile, k0, kCount, col, kF), "") << "tile at column " << col;
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
