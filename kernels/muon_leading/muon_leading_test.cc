#include "kernels/muon_leading/muon_leading.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/muon_leading/basis.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kRank = formats::kLeadingRank;
constexpr double kMu = 0.95;

float RandomAt(uint32_t stream, int64_t element) {
  const RngKey key = {9, RngPurpose::kTest, stream, 0, 0};
  return static_cast<float>(RngWord(key, static_cast<uint64_t>(element))) * 0x1p-31F - 1.0F;
}

// A momentum's state, zeros at first; codes and scales begin where those of a matrix in a fused
// tensor may.
template <typename T>
struct State {
  State(int64_t m, int64_t n)
      : rows(m),
        cols(n),
        codes(static_cast<size_t>(m * n / 2 + 8)),
        scales(static_cast<size_t>(m * n / 16 + 3)),
        left(static_cast<size_t>(m * kRank)),
        right(static_cast<size_t>(n * kRank)),
        workspace(MuonLeadingMatrixBytes(sizeof(T), m, n) + 64) {}

  MuonLeadingMatrix Views(std::vector<T>& grad) {
    MuonLeadingMatrix matrix;
    matrix.codes = View(codes.data() + 8, {rows * cols / 2});
    matrix.scales = View(scales.data() + 3, {rows * cols / 16});
    matrix.left = TensorView(left.data(), DType::kBF16, {rows * kRank});
    matrix.right = TensorView(right.data(), DType::kBF16, {cols * kRank});
    matrix.unit = View(&unit, {1});
    matrix.grad = View(grad.data(), {rows, cols});
    matrix.index = 5;
    return matrix;
  }

  Exec InWorkspace() {
    Exec exec;
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    const size_t skip = (64 - address % 64) % 64;
    exec.workspace = {workspace.data() + skip, workspace.size() - skip};
    return exec;
  }

  absl::Status Step(std::vector<T>& grad, float scale = 1.0F, int32_t skip = 0) {
    const MuonLeadingMatrix matrix = Views(grad);
    MuonLeadingArgs args;
    args.matrices = absl::MakeConstSpan(&matrix, 1);
    args.mu = kMu;
    args.grad_scale = &scale;
    args.skip = &skip;
    return MuonLeading(InWorkspace(), args);
  }

  double Leading(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t k = 0; k < kRank; ++k) {
      sum += double{DecodeBf16(left[static_cast<size_t>(i * kRank + k)])} *
             DecodeBf16(right[static_cast<size_t>(j * kRank + k)]);
    }
    return sum;
  }

  int64_t rows;
  int64_t cols;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  std::vector<uint16_t> left;
  std::vector<uint16_t> right;
  float unit = 0.0F;
  std::vector<uint8_t> workspace;
};

// Four strong directions and noise.
template <typename T>
std::vector<T> Matrix(int64_t rows, int64_t cols, double noise) {
  std::vector<T> x;
  for (int64_t i = 0; i < rows * cols; ++i) {
    double value = noise * RandomAt(1, i);
    for (uint32_t k = 0; k < 4; ++k) {
      value += RandomAt(2 + k, i / cols) * RandomAt(12 + k, i % cols);
    }
    x.push_back(static_cast<T>(value));
  }
  return x;
}

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

// The look ahead is exact in the first step, which starts from nothing. Later steps keep what the
// formats keep: the strong directions in bf16, and 4 bits of the noise.
TEST(MuonLeadingTest, Steps_FollowTheMomentum_ToWhatTheRestRounds) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 96;
  constexpr double kNoise = 0.05;
  State<double> state(kRows, kCols);
  const std::vector<double> gradient = Matrix<double>(kRows, kCols, kNoise);
  std::vector<double> exact(gradient.size());
  std::vector<double> errors;
  for (int step = 0; step < 40; ++step) {
    std::vector<double> grad = gradient;
    ASSERT_TRUE(state.Step(grad, 0.5F).ok());
    for (size_t i = 0; i < grad.size(); ++i) {
      exact[i] = kMu * exact[i] + 0.5 * gradient[i];
      grad[i] -= 0.5 * gradient[i] + kMu * exact[i];
    }
    errors.push_back(Norm(grad) / Norm(exact));
  }
  EXPECT_LT(errors[0], 1e-12);
  // The first step's momentum has no direction apart: 4 bits of everything.
  EXPECT_GT(errors[1], 0.02);
  EXPECT_LT(errors[1], 0.1);
  // What that rounded is forgotten by 0.95 a step. Without P R^T it would be made again each step.
  EXPECT_LT(errors.back(), 0.015);
}

TEST(MuonLeadingTest, LeftFactor_HasOrthonormalColumns_AndTheProductIsTheMatrixProjected) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kCols = 48;
  State<float> state(kRows, kCols);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> grad = Matrix<float>(kRows, kCols, 0.1);
    ASSERT_TRUE(state.Step(grad).ok());
  }
  for (int64_t a = 0; a < kRank; ++a) {
    for (int64_t b = 0; b < kRank; ++b) {
      double sum = 0;
      for (int64_t i = 0; i < kRows; ++i) {
        sum += double{DecodeBf16(state.left[static_cast<size_t>(i * kRank + a)])} *
               DecodeBf16(state.left[static_cast<size_t>(i * kRank + b)]);
      }
      EXPECT_NEAR(sum, a == b ? 1.0 : 0.0, 0.01) << a << " " << b;
    }
  }
  // The noise is 0.087 of the matrix, and four of the eight directions are of it.
  const std::vector<double> gradient = Matrix<double>(kRows, kCols, 0.1);
  std::vector<double> rest;
  std::vector<double> all;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j) {
      const double m = gradient[static_cast<size_t>(i * kCols + j)] * (1 + kMu + kMu * kMu);
      all.push_back(m);
      rest.push_back(m - state.Leading(i, j));
    }
  }
  EXPECT_LT(Norm(rest), 0.08 * Norm(all));
}

TEST(MuonLeadingTest, Zeros_StayZeroBytes_AndTheNextStepGoesOn) {
  State<float> state(32, 32);
  std::vector<float> grad(32 * 32);
  ASSERT_TRUE(state.Step(grad).ok());
  const auto is_zero = [](const auto& values) {
    return std::all_of(values.begin(), values.end(), [](auto x) { return x == 0; });
  };
  EXPECT_TRUE(is_zero(grad));
  EXPECT_TRUE(is_zero(state.codes));
  EXPECT_TRUE(is_zero(state.scales));
  EXPECT_TRUE(is_zero(state.left));
  EXPECT_FALSE(is_zero(state.right)) << "where the next step begins";
  // A matrix of rank 1 fills one column alone.
  std::fill(grad.begin(), grad.end(), 3.0F);
  ASSERT_TRUE(state.Step(grad).ok());
  for (int64_t k = 0; k < kRank; ++k) {
    EXPECT_EQ(state.left[static_cast<size_t>(k)] == 0, k > 0) << k;
  }
  EXPECT_NEAR(state.Leading(3, 7), 3.0, 0.03);
}

TEST(MuonLeadingTest, RefusedStep_LeavesEverything) {
  State<float> state(32, 48);
  std::vector<float> grad = Matrix<float>(32, 48, 0.1);
  ASSERT_TRUE(state.Step(grad).ok());
  const State<float> before = state;
  std::vector<float> refused(grad.size(), std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(state.Step(refused, 1.0F, 1).ok());
  EXPECT_EQ(state.codes, before.codes);
  EXPECT_EQ(state.scales, before.scales);
  EXPECT_EQ(state.left, before.left);
  EXPECT_EQ(state.right, before.right);
  EXPECT_EQ(state.unit, before.unit);
}

TEST(MuonLeadingTest, NaN_StaysInTheMomentum) {
  State<float> state(32, 48);
  std::vector<float> grad = Matrix<float>(32, 48, 0.1);
  grad[100] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(state.Step(grad).ok());
  std::vector<float> next = Matrix<float>(32, 48, 0.1);
  ASSERT_TRUE(state.Step(next).ok());
  EXPECT_TRUE(std::isnan(next[100]));
}

TEST(MuonLeadingTest, Basis_DropsColumnsThatDependOnOthers) {
  double gram[kRank][kRank] = {};
  for (int64_t k = 0; k < kRank; ++k) {
    gram[k][k] = 4.0;
  }
  gram[2][1] = gram[1][2] = 4.0;  // the same column
  gram[5][5] = 0.0;
  LeadingBasis basis = {};
  FactorGram(gram, basis);
  EXPECT_EQ(basis.dropped, 1U << 2 | 1U << 5);
  const float y[kRank] = {2, 4, 4, 6, 0, 1, 0, 8};
  float p[kRank];
  RowOfBasis(basis, y, p);
  const float expected[kRank] = {1, 2, 0, 3, 0, 0, 0, 4};
  for (int64_t k = 0; k < kRank; ++k) {
    EXPECT_EQ(p[k], expected[k]) << k;
  }
}

TEST(MuonLeadingTest, BadArguments_AreRefused) {
  State<float> state(32, 48);
  std::vector<float> grad(32 * 48);
  MuonLeadingMatrix matrix = state.Views(grad);
  MuonLeadingArgs args;
  args.matrices = absl::MakeConstSpan(&matrix, 1);
  EXPECT_TRUE(CanImplement(args).ok());
  EXPECT_EQ(MuonLeading(Exec(), args).code(), absl::StatusCode::kInvalidArgument) << "no workspace";
  args.mu = 1.0;
  EXPECT_EQ(CanImplement(args).code(), absl::StatusCode::kInvalidArgument);
  args.mu = 0.5;
  matrix.grad.shape[0] = 31;
  EXPECT_EQ(CanImplement(args).code(), absl::StatusCode::kInvalidArgument) << "codes of other rows";
  matrix.grad.shape = {64, 24, 0, 0};
  EXPECT_EQ(CanImplement(args).code(), absl::StatusCode::kInvalidArgument) << "a block and a half";
}

}  // namespace
}  // namespace hearth::kernels
