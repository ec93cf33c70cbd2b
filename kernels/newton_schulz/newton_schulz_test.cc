#include "kernels/newton_schulz/newton_schulz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

std::vector<double> Normal(int64_t count, uint32_t stream) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    const RngKey key = {11, RngPurpose::kTest, stream, 0, 0};
    // Twelve uniform numbers: near enough to normal.
    double sum = -6.0;
    for (uint64_t k = 0; k < 12; ++k) {
      sum += static_cast<double>(RngWord(key, static_cast<uint64_t>(i) * 12 + k)) * 0x1p-32;
    }
    values.push_back(0.25 * sum);
  }
  return values;
}

void Orthogonalise(const std::vector<TensorView>& matrices, const char* row) {
  std::vector<uint8_t> workspace(NewtonSchulzWorkspaceBytes(Device::kCpu, matrices[0].dtype,
                                                            matrices[0].rows(), matrices[0].cols(),
                                                            static_cast<int64_t>(matrices.size())) +
                                 64);
  Exec exec;
  const size_t skip = 64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64;
  exec.workspace = {workspace.data() + skip, workspace.size() - skip};
  const absl::Status done = NewtonSchulz(exec, {matrices, FindNewtonSchulz(row)});
  ASSERT_TRUE(done.ok()) << done;
}

// Written out with loops, in double.
std::vector<double> Reference(std::vector<double> x,
                              int64_t m,
                              int64_t n,
                              const NewtonSchulzRow& row) {
  const auto at = [](int64_t i, int64_t j, int64_t width) {
    return static_cast<size_t>(i * width + j);
  };
  double norm = 0.0;
  for (const double v : x) {
    norm += v * v;
  }
  for (double& v : x) {
    v /= std::sqrt(norm) + 1e-7;
  }
  const auto product = [&](const std::vector<double>& a, const std::vector<double>& b, int64_t k,
                           int64_t width, bool transpose) {
    std::vector<double> c(static_cast<size_t>(m * width));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        for (int64_t l = 0; l < k; ++l) {
          c[at(i, j, width)] += a[at(i, l, k)] * b[transpose ? at(j, l, k) : at(l, j, width)];
        }
      }
    }
    return c;
  };
  for (const NewtonSchulzStep& step : row.steps) {
    const std::vector<double> gram = product(x, x, n, m, true);
    std::vector<double> factor = product(gram, gram, m, m, false);
    for (size_t i = 0; i < factor.size(); ++i) {
      factor[i] = step.b * gram[i] + step.c * factor[i];
    }
    const std::vector<double> lifted = product(factor, x, m, n, false);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = step.a * x[i] + lifted[i];
    }
  }
  return x;
}

TEST(NewtonSchulzTest, BothRows_FollowTheFormula) {
  for (const NewtonSchulzRow& row : NewtonSchulzRows()) {
    std::vector<double> u = Normal(int64_t{13} * 29, 1);
    const std::vector<double> expected = Reference(u, 13, 29, row);
    Orthogonalise({View(u.data(), {13, 29})}, row.name.data());
    for (size_t i = 0; i < u.size(); ++i) {
      ASSERT_NEAR(u[i], expected[i], 1e-11) << row.name << " " << i;
    }
  }
}

TEST(NewtonSchulzTest, MoreRowsThanColumns_GivesTheTranspose) {
  std::vector<double> wide = Normal(int64_t{13} * 29, 1);
  std::vector<double> tall(wide.size());
  for (size_t i = 0; i < 13; ++i) {
    for (size_t j = 0; j < 29; ++j) {
      tall[j * 13 + i] = wide[i * 29 + j];
    }
  }
  Orthogonalise({View(wide.data(), {13, 29}), View(tall.data(), {29, 13})}, "tuned");
  for (size_t i = 0; i < 13; ++i) {
    for (size_t j = 0; j < 29; ++j) {
      ASSERT_NEAR(tall[j * 13 + i], wide[i * 29 + j], 1e-12) << i << " " << j;
    }
  }
}

TEST(NewtonSchulzTest, MatricesOfAFusedTensor_AreAsIfTheyWereAlone) {
  std::vector<float> fused(size_t{3} * 8 * 24);
  const std::vector<double> values = Normal(static_cast<int64_t>(fused.size()), 2);
  std::copy(values.begin(), values.end(), fused.begin());
  std::vector<std::vector<float>> alone;
  std::vector<TensorView> parts;
  for (int64_t i = 0; i < 3; ++i) {
    alone.emplace_back(fused.begin() + i * 192, fused.begin() + (i + 1) * 192);
    parts.push_back(View(fused.data() + i * 192, {8, 24}));
  }
  Orthogonalise(parts, "tuned");
  for (size_t i = 0; i < 3; ++i) {
    Orthogonalise({View(alone[i].data(), {8, 24})}, "tuned");
    EXPECT_TRUE(std::equal(alone[i].begin(), alone[i].end(),
                           fused.begin() + static_cast<std::ptrdiff_t>(i) * 192));
  }
}

TEST(NewtonSchulzTest, Zeros_StayZeros) {
  std::vector<float> u(size_t{6} * 9);
  Orthogonalise({View(u.data(), {6, 9})}, "tuned");
  EXPECT_EQ(u, std::vector<float>(size_t{6} * 9));
}

TEST(NewtonSchulzTest, BadArguments_AreRefused) {
  std::vector<float> u(size_t{6} * 9);
  const std::vector<TensorView> mixed = {View(u.data(), {6, 9}), View(u.data(), {6, 8})};
  const NewtonSchulzRow* row = FindNewtonSchulz("tuned");
  EXPECT_EQ(NewtonSchulz(Exec(), {mixed, row}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NewtonSchulz(Exec(), {{}, nullptr}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NewtonSchulz(Exec(), {absl::MakeConstSpan(mixed).first(1), row}).code(),
            absl::StatusCode::kInvalidArgument)
      << "no workspace";
}

}  // namespace
}  // namespace hearth::kernels
