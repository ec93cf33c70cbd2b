// MuonMomentum (kernels/muon) for matrices whose momentum is kept in 4 bits with its leading
// directions apart (common/formats/leading_blocks.h):
//   g = grad * grad_scale;  M = mu (P R^T + rest) + g;  grad = g + mu M
//   Y = M R;  P = an orthonormal basis of the columns of Y;  R = M^T P;  rest = M - P R^T
// P and R are rounded before the rest is made of them, so what they lose stays in it. It is one
// power iteration a step, from the R of the step before. A column of Y that depends on those before
// it gets zeros in P and random numbers in R, with which the next step goes on: so a momentum of
// zero bytes begins. The first step therefore keeps no direction apart.
//
// Arithmetic in T (CPU: the gradient's type, kF32 or kF64; CUDA: kF32), products of Y with itself
// in double. Bits independent of exec.threads and of how matrices are grouped into calls; the CPU's
// and CUDA's differ by roundings, so now and then by a code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/formats/leading_blocks.h"
#include "kernels/core/door.h"
#include "kernels/core/tensor.h"

namespace hearth::kernels {

// cols is a multiple of 16. left, right and grad begin at 16 bytes and codes at 8, as the matrices
// of a fused tensor do.
//   codes  : kU8, rows cols / 2      scales : kU8, rows cols / 16, e4m3      unit : kF32, one
//   left   : kBF16, P [rows, kLeadingRank]     right : kBF16, R [cols, kLeadingRank]
//   grad   : [rows, cols], T, G on CUDA, replaced by the look ahead of the momentum before that is
//            rounded
//   index  : of the matrix in the model, < 2^24: what its random numbers depend on
struct MuonLeadingMatrix {
  TensorView codes;
  TensorView scales;
  TensorView left;
  TensorView right;
  TensorView unit;
  TensorView grad;
  uint32_t index = 0;
};

// mu, grad_scale, skip : as MuonMomentumArgs
struct MuonLeadingArgs {
  absl::Span<const MuonLeadingMatrix> matrices;
  double mu = 0.95;
  const float* grad_scale = nullptr;
  const int32_t* skip = nullptr;
};

// Errors: kInvalidArgument (counts, types, mu, workspace); kUnimplemented (types of the other
// device).
HEARTH_DECLARE_OP(MuonLeading, MuonLeadingArgs);

// A GPU computes matrices together whose scratch is this much; each of the larger ones alone.
inline constexpr size_t kMuonLeadingScratchBytes = size_t{32} << 20;

// For any matrices, so that plans need no views: the scratch of one.
size_t MuonLeadingMatrixBytes(size_t element_bytes, int64_t rows, int64_t cols);
size_t MuonLeadingWorkspaceBytes(Device device, absl::Span<const MuonLeadingMatrix> matrices);

// For the versions behind the door: offsets in the scratch of one matrix, each of 16 bytes.
struct MuonLeadingScratch {
  size_t momentum = 0;  // [rows, cols], later the rest
  size_t product = 0;   // Y
  size_t largest = 0;   // of each row of the rest
  size_t right = 0;     // R transposed, widened (CPU)
  size_t dropped = 0;   // uint32: bit k: column k of P is zeros
  size_t bytes = 0;     // a multiple of 64
};
MuonLeadingScratch ScratchOf(size_t element_bytes, int64_t rows, int64_t cols);
// How many of the first matrices a device computes together.
size_t MuonLeadingBatch(Device device, absl::Span<const MuonLeadingMatrix> matrices);

}  // namespace hearth::kernels
