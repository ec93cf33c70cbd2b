// The elementwise halves of Muon's step (kernels/newton_schulz between them), over many tensors in
// one call; Moonlight's form (arXiv 2502.16982, with decay and rate as in AdamW):
//   MuonMomentum:  g = grad * grad_scale;  buf = mu buf + g;  grad = g + mu buf
//   MuonUpdate:    p = p (1 - lr wd) - lr rate o
// Arithmetic in T (CPU: the gradient's type, kF32 or kF64; CUDA: kF32), scalars prepared in double.
// Bits independent of exec.threads and of how tensors are grouped into calls; the CPU's and
// CUDA's differ by roundings (fused multiply-adds).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/door.h"
#include "kernels/core/state_scales.h"
#include "kernels/core/tensor.h"
#include "kernels/core/weight_update.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {

// What makes the update of an orthogonal [m, n] as large as AdamW's: its root mean square is 0.2.
inline double MuonRate(int64_t m, int64_t n) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(m, n)));
}

// Views of a tensor or of a piece of one, each with the same number of elements.
//   momentum : kF32 or kBF16 (CPU: T or kBF16), updated; or codes with scales in `blocks`, linear
//              signed 8 alone, which a piece begins at a block of (common/formats/state_blocks.h)
//   grad     : T, G on CUDA, replaced by the look ahead of the momentum before that is rounded to
//              its format
// Bytes moved for an element with gradients of G bytes, which are the floor: momentum fp32 8 + 2 G,
// bf16 4 + 2 G, int8 2 + 8/256 + 2 G.
struct MuonMomentumTensor {
  TensorView momentum;
  TensorView grad;
  StateBlocks blocks = {};
};

// grad_scale, skip : as AdamWArgs
struct MuonMomentumArgs {
  absl::Span<const MuonMomentumTensor> tensors;
  double mu = 0.95;
  const float* grad_scale = nullptr;
  const int32_t* skip = nullptr;
};

//   o : the orthogonal factor: T, G on CUDA
struct MuonUpdateTensor : UpdatedWeight {
  TensorView o;
  double rate = 1.0;  // MuonRate of the whole matrix
};

struct MuonUpdateArgs : UpdateArgs {
  absl::Span<const MuonUpdateTensor> tensors;
};

// Errors: kInvalidArgument (counts, types, mu); kUnimplemented (types of the other device, other
// codecs).
HEARTH_DECLARE_OP(MuonMomentum, MuonMomentumArgs);
HEARTH_DECLARE_OP(MuonUpdate, MuonUpdateArgs);

}  // namespace hearth::kernels
