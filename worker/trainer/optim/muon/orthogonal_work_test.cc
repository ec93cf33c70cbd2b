#include "common/spec/optimizer/orthogonal_work.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/muon_leading/muon_leading.h"
#include "kernels/newton_schulz/newton_schulz.h"

namespace hearth::trainer {
namespace {

using kernels::Device;
using kernels::DType;

struct Matrices {
  int64_t rows;
  int64_t cols;
  int64_t count;
};
constexpr Matrices kMatrices[] = {
    {768, 768, 24},   {192, 768, 24}, {2048, 768, 24},  {1536, 8960, 84}, {64, 64, 500},
    {8192, 28672, 3}, {16, 16, 1},    {5120, 5120, 40}, {512, 1024, 9},   {512, 1025, 9}};

// What plans say of Newton-Schulz without a GPU is what its kernels say of themselves.
TEST(OrthogonalWorkTest, ScratchOfAPlan_IsTheKernels) {
  for (const Matrices& row : kMatrices) {
    const auto [m, n] = std::minmax(row.rows, row.cols);
    EXPECT_EQ(static_cast<size_t>(spec::OrthogonalScratchBytes(m, n, row.count)),
              kernels::NewtonSchulzWorkspaceBytes(Device::kCuda, DType::kBF16, row.rows, row.cols,
                                                  row.count))
        << row.rows << " x " << row.cols << ", " << row.count;
  }
}

// A momentum with its leading directions apart is computed before the iteration, in the scratch
// that this needs: so plans do not count its own.
TEST(OrthogonalWorkTest, ScratchOfLeadingDirections_IsNoMoreThanTheIterations) {
  for (const Matrices& row : kMatrices) {
    std::vector<kernels::MuonLeadingMatrix> matrices(static_cast<size_t>(row.count));
    for (kernels::MuonLeadingMatrix& matrix : matrices) {
      matrix.grad =
          kernels::TensorView(static_cast<void*>(nullptr), DType::kBF16, {row.rows, row.cols});
    }
    const auto [m, n] = std::minmax(row.rows, row.cols);
    const size_t bytes = kernels::MuonLeadingWorkspaceBytes(Device::kCuda, matrices);
    EXPECT_LE(bytes, static_cast<size_t>(spec::OrthogonalScratchBytes(m, n, row.count)))
        << row.rows << " x " << row.cols << ", " << row.count;
    EXPECT_GE(bytes, static_cast<size_t>(4 * m * n));
  }
}

// kernels/newton_schulz/newton_schulz.h: 5 (4 m^2 n + 2 m^3), of the Gram form 12 m^2 n + 22 m^3.
TEST(OrthogonalWorkTest, ProductsOfAPlan_AreTheKernels) {
  for (const Matrices& row : kMatrices) {
    const auto [m, n] = std::minmax(row.rows, row.cols);
    double flops = 0;
    for (const spec::OrthogonalProduct& p : spec::OrthogonalProducts(m, n)) {
      flops += 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) *
               static_cast<double>(p.k) * static_cast<double>(p.calls);
    }
    const auto dm = static_cast<double>(m);
    const auto dn = static_cast<double>(n);
    const double plain = kernels::kNewtonSchulzSteps * (4 * dm * dm * dn + 2 * dm * dm * dm);
    EXPECT_DOUBLE_EQ(flops, n > 2 * m ? 12 * dm * dm * dn + 22 * dm * dm * dm : plain);
    EXPECT_LE(flops, plain);
  }
}

}  // namespace
}  // namespace hearth::trainer
