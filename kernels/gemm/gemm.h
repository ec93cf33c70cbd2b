// Matrix products by OpenBLAS. Row-major throughout; views of rank > 2 are folded to
// [rows(), cols()].
//   "T" below is the storage type: every view of one call has the same dtype, kF32 or kF64.
//   Emulated BF16: operands are expected to be rounded already (the engine keeps rounded copies);
//   only the output is rounded here, `round_c`.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

// c = round_c(alpha * op(a) * op(b) + beta * c + bias)
//   a    : [M, K] T, or [K, M] if transpose_a        b : [K, N] T, or [N, K] if transpose_b
//   c    : [M, N] T, read only if beta != 0; may not alias a or b
//   bias : [N] T, optional, added to every row
// The three products of a linear layer with weight w [N, K] (Hugging Face layout):
//   y = x wT      : a = x,  b = w,  transpose_b
//   dx = dy w     : a = dy, b = w
//   dw += dyT x   : a = dy, b = x,  transpose_a, beta = 1
struct GemmArgs {
  TensorView a;
  TensorView b;
  TensorView c;
  TensorView bias;
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1.0;
  double beta = 0.0;
  DType round_c = DType::kF32;  // kF32: no rounding; kBF16 / kF16: round to nearest even
};

// Errors: kInvalidArgument (shape or dtype, text says which); kUnimplemented (device, rounding).
// Bits depend on exec.threads, not on anything else of the call. Extents must fit an int.
absl::Status CanImplement(const GemmArgs& args);
size_t GemmWorkspaceBytes(const GemmArgs& args);  // 0
absl::Status Gemm(const Exec& exec, const GemmArgs& args);

// out[n] = beta * out[n] + sum over rows of x[row, n]: the gradient of a bias.
//   x : [M, N] T      out : [N] T
// Bits independent of exec.threads.
struct ColumnSumArgs {
  TensorView x;
  TensorView out;
  double beta = 0.0;
};

absl::Status CanImplement(const ColumnSumArgs& args);
size_t ColumnSumWorkspaceBytes(const ColumnSumArgs& args);
absl::Status ColumnSum(const Exec& exec, const ColumnSumArgs& args);

}  // namespace hearth::kernels
