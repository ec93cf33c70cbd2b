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

void Orthogonalise(const std::vector<TensorView>& matrices,
                   const char* row,
                   NewtonSchulzForm form = NewtonSchulzForm::kByShape,
                   DType round = DType::kF32) {
  std::vector<uint8_t> workspace(
      NewtonSchulzWorkspaceBytes(Device::kCpu, matrices[0].dtype, matrices[0].rows(),
                                 matrices[0].cols(), static_cast<int64_t>(matrices.size()), form) +
      64);
  Exec exec;
  const size_t skip = 64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64;
  exec.workspace = {workspace.data() + skip, workspace.size() - skip};
  const absl::Status done = NewtonSchulz(exec, {matrices, FindNewtonSchulz(row), form, round});
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

TEST(NewtonSchulzTest, BothRowsInBothForms_FollowTheFormula) {
  for (const NewtonSchulzRow& row : NewtonSchulzRows()) {
    for (const NewtonSchulzForm form : {NewtonSchulzForm::kPlain, NewtonSchulzForm::kGram}) {
      std::vector<double> u = Normal(int64_t{13} * 29, 1);
      const std::vector<double> expected = Reference(u, 13, 29, row);
      Orthogonalise({View(u.data(), {13, 29})}, row.name.data(), form);
      for (size_t i = 0; i < u.size(); ++i) {
        ASSERT_NEAR(u[i], expected[i], 1e-11) << row.name << " " << i;
      }
    }
  }
}

TEST(NewtonSchulzTest, MatrixLongerThanTwiceItsWidth_TakesTheGramForm) {
  for (const int64_t columns : {16, 17}) {
    const std::vector<double> values = Normal(8 * columns, 3);
    std::vector<std::vector<float>> results;
    for (const NewtonSchulzForm form :
         {NewtonSchulzForm::kByShape, NewtonSchulzForm::kPlain, NewtonSchulzForm::kGram}) {
      results.emplace_back(values.begin(), values.end());
      Orthogonalise({View(results.back().data(), {8, columns})}, "tuned", form);
    }
    // The forms' sums are rounded differently.
    ASSERT_NE(results[1], results[2]);
    EXPECT_EQ(results[0], results[columns > 16 ? 2 : 1]) << columns;
  }
}

// A [m, n] matrix whose singular values fall from about 1 to 10^-decades.
std::vector<double> Decaying(int64_t m, int64_t n, double decades) {
  const std::vector<double> rows = Normal(m * n, 4);
  const std::vector<double> mix = Normal(m * m, 5);
  std::vector<double> x(rows.size());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t k = 0; k < m; ++k) {
      const double weight = mix[static_cast<size_t>(i * m + k)] *
                            std::pow(10.0, -decades * static_cast<double>(k) / double(m));
      for (int64_t j = 0; j < n; ++j) {
        x[static_cast<size_t>(i * n + j)] += weight * rows[static_cast<size_t>(k * n + j)];
      }
    }
  }
  return x;
}

// What a GPU holds in BF16, on the CPU: the Gram form is as near to the exact iteration as the
// plain one, also where small singular values would drown in the errors of a Gram matrix that is
// carried on from step to step.
TEST(NewtonSchulzTest, GramFormInBf16_IsAsNearAsThePlainOne) {
  for (const double decades : {0.0, 1.0, 2.0}) {
    const std::vector<double> u = Decaying(48, 192, decades);
    std::vector<double> exact = u;
    Orthogonalise({View(exact.data(), {48, 192})}, "tuned", NewtonSchulzForm::kPlain);
    double errors[2] = {};
    for (const bool gram : {false, true}) {
      std::vector<double> x = u;
      Orthogonalise({View(x.data(), {48, 192})}, "tuned",
                    gram ? NewtonSchulzForm::kGram : NewtonSchulzForm::kPlain, DType::kBF16);
      for (size_t i = 0; i < x.size(); ++i) {
        errors[gram ? 1 : 0] += (x[i] - exact[i]) * (x[i] - exact[i]);
      }
    }
    // The squares of a result add up to 48.
    EXPECT_GT(errors[0] / 48, 1e-6) << "rounded";
    EXPECT_LT(errors[0] / 48, 5e-3) << decades;
    EXPECT_LT(errors[1] / errors[0], 1.3) << decades;
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
  NewtonSchulzArgs rounded = {absl::MakeConstSpan(mixed).first(1), row};
  rounded.round = DType::kE4M3;
  EXPECT_EQ(NewtonSchulz(Exec(), rounded).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(NewtonSchulz(Exec(), {{}, nullptr}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NewtonSchulz(Exec(), {absl::MakeConstSpan(mixed).first(1), row}).code(),
            absl::StatusCode::kInvalidArgument)
      << "no workspace";
}

}  // namespace
}  // namespace hearth::kernels
