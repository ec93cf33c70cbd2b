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

//   master  : kF32 or kBF16 (CPU: T or kBF16), updated; BF16 rounds to nearest even, or as
//             MuonUpdateArgs::stochastic_rounding says
//   o       : the orthogonal factor: T, G on CUDA
//   working : the stored master rounded to round_working (CPU: T) or A; may be the master
struct MuonUpdateTensor {
  TensorView master;
  TensorView o;
  TensorView working;
  double rate = 1.0;  // MuonRate of the whole matrix
  double lr_scale = 1.0;
  double weight_decay = 0.0;
  float* amax = nullptr;  // optional: raised to max |working|, as AdamWTensor's
  uint32_t index = 0;     // number of the tensor in the model, < 2^24: in the key of its randomness
  uint64_t first_element = 0;  // the place of these elements in the tensor
};

// inputs : optional, on the tensors' device: then learning rate and the step of the randomness are
//          its, and lr and step of the arguments are ignored
// stochastic_rounding, seed : as AdamWArgs: the same key, so that an element's random numbers do
//          not depend on which optimizer updates it, in which piece
struct MuonUpdateArgs {
  absl::Span<const MuonUpdateTensor> tensors;
  double lr = 0.0;
  int64_t step = 1;
  const int32_t* skip = nullptr;
  DType round_working = DType::kF32;
  const StepInputs* inputs = nullptr;
  bool stochastic_rounding = false;
  uint64_t seed = 0;
};

// Errors: kInvalidArgument (counts, types, mu); kUnimplemented (types of the other device, other
// codecs).
absl::Status CanImplement(const MuonMomentumArgs& args);
absl::Status CanImplement(const MuonUpdateArgs& args);
absl::Status MuonMomentum(const Exec& exec, const MuonMomentumArgs& args);
absl::Status MuonUpdate(const Exec& exec, const MuonUpdateArgs& args);

HEARTH_DECLARE_VERSIONS(MuonMomentum, const MuonMomentumArgs& args);
HEARTH_DECLARE_VERSIONS(MuonUpdate, const MuonUpdateArgs& args);

}  // namespace hearth::kernels
