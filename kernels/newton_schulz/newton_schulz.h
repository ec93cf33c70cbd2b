// The orthogonal factor of matrices, by Newton-Schulz iteration: Muon's step (Jordan et al.,
// kellerjordan.github.io/posts/muon, 2024). With u = U S V^T the result is near U V^T:
//   X = u / (||u||_F + 1e-7), transposed where u has more rows than columns
//   five times  A = X X^T;  X = a X + (b A + c A^2) X,  with the coefficients of the row
//   the result is X, transposed back
// 5 (4 m^2 n + 2 m^3) floating point operations a matrix, m <= n its extents.
//
// A long matrix takes the Gram form (Dao-AILab, tridao.me/blog/2026/gram-newton-schulz): two steps
// share one product with X on each side, because the Gram matrix after a step follows from the one
// before it:
//   A = X X^T;  P = a I + b A + c A^2;  A' = P A P;  P' = a' I + b' A' + c' A'^2;  X = (P' P) X
// The steps are taken as 2, 2 and 1, so X is multiplied three times instead of five and its Gram
// matrix is made afresh as often: in BF16 the errors of A' would otherwise grow into eigenvalues
// below zero. 12 m^2 n + 22 m^3 operations, fewer where n > 1.5 m.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/door.h"
#include "kernels/core/tensor.h"

namespace hearth::kernels {

struct NewtonSchulzStep {
  double a = 0.0;
  double b = 0.0;
  double c = 0.0;
};

inline constexpr int kNewtonSchulzSteps = 5;

// Coefficients under a name of optimizer.newton_schulz.
struct NewtonSchulzRow {
  std::string_view name;
  std::array<NewtonSchulzStep, kNewtonSchulzSteps> steps;
  std::string_view comment;
};
absl::Span<const NewtonSchulzRow> NewtonSchulzRows();
// null: no such row
const NewtonSchulzRow* FindNewtonSchulz(std::string_view name);
std::vector<std::string_view> NewtonSchulzNames();

enum class NewtonSchulzForm : uint8_t {
  kByShape,  // kGram where formats::TakesGramForm says so (common/formats/gram_form.h), else kPlain
  kPlain,
  kGram,
};

// Matrices of one kind that are computed together.
//   matrices : each [m, n] or [n, m], m <= n, replaced by its result; T = kF32 or kF64 (CPU), G on
//              CUDA (kF32 or kBF16). They may lie anywhere and do not overlap
// CPU: arithmetic in T. CUDA: norms in fp32, X and the products' operands in bf16, sums in fp32;
// as many matrices as fit into kNewtonSchulzScratchBytes go into one strided-batched product.
// A matrix of zeros stays one. Bits: as those of Gemm; they do not depend on what other matrices
// there are on the CPU.
//   form     : which of the two sequences of products above makes the result; their results differ
//              by roundings. Anything but kByShape is for tests
//   round    : CPU: X and each product are rounded to it (kBF16: what a GPU holds)
struct NewtonSchulzArgs {
  absl::Span<const TensorView> matrices;
  const NewtonSchulzRow* row = nullptr;
  NewtonSchulzForm form = NewtonSchulzForm::kByShape;
  DType round = DType::kF32;
};

// What the matrices of one batch take, if several fit.
inline constexpr size_t kNewtonSchulzScratchBytes = size_t{96} << 20;

// Errors: kInvalidArgument (shapes, dtypes, no row); kUnimplemented (device).
absl::Status CanImplement(const NewtonSchulzArgs& args);
// For `count` matrices of rows x cols in `dtype`.
size_t NewtonSchulzWorkspaceBytes(Device device,
                                  DType dtype,
                                  int64_t rows,
                                  int64_t cols,
                                  int64_t count,
                                  NewtonSchulzForm form = NewtonSchulzForm::kByShape);
absl::Status NewtonSchulz(const Exec& exec, const NewtonSchulzArgs& args);

// The two ends of a batch.
//   load  : x[i] = matrices[i] / (||matrices[i]||_F + 1e-7), transposed where rows > cols
//   store : matrices[i] = x[i], transposed back
//   x     : count matrices [m, n], one after the other; T on the CPU, bf16 on CUDA
//   partial : scratch of load: kNewtonSchulzParts floats a matrix (CUDA)
struct NewtonSchulzBatch {
  absl::Span<const TensorView> matrices;  // at most kNewtonSchulzBatch
  void* x = nullptr;
  float* partial = nullptr;
};
inline constexpr int kNewtonSchulzBatch = 64;
inline constexpr int64_t kNewtonSchulzParts = 256;

// x[i] = scale * x[i] + shift * I, each of `count` [m, m] one after the other; in place. T on the
// CPU, bf16 on CUDA.
struct ShiftDiagonalArgs {
  TensorView x;  // the first, [m, m]
  int64_t count = 0;
  double scale = 1.0;
  double shift = 0.0;
};

HEARTH_DECLARE_VERSIONS(ShiftDiagonal, const ShiftDiagonalArgs& args);
HEARTH_DECLARE_VERSIONS(LoadNewtonSchulz, const NewtonSchulzBatch& batch);
HEARTH_DECLARE_VERSIONS(StoreNewtonSchulz, const NewtonSchulzBatch& batch);

}  // namespace hearth::kernels
