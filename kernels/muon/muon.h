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
#include "kernels/core/tensor.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {

// What makes the update of an orthogonal [m, n] as large as AdamW's: its root mean square is 0.2.
inline double MuonRate(int64_t m, int64_t n) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(m, n)));
}

// Views of a tensor or of a piece of one, each with the same number of elements.
//   momentum : kF32 or kBF16 (CPU: T or kBF16), updated
//   grad     : T, G on CUDA, replaced by the momentum's look ahead
struct MuonMomentumTensor {
  TensorView momentum;
  TensorView grad;
};

// grad_scale, skip : as AdamWArgs
struct MuonMomentumArgs {
  absl::Span<const MuonMomentumTensor> tensors;
  double mu = 0.95;
  const float* grad_scale = nullptr;
  const int32_t* skip = nullptr;
};

//   master  : kF32 (CPU: T), updated
//   o       : the orthogonal factor: T, G on CUDA
//   working : the master rounded to round_working (CPU: T) or A
struct MuonUpdateTensor {
  TensorView master;
  TensorView o;
  TensorView working;
  double rate = 1.0;  // MuonRate of the whole matrix
  double lr_scale = 1.0;
  double weight_decay = 0.0;
  float* amax = nullptr;  // optional: raised to max |working|, as AdamWTensor's
};

// inputs : optional, on the tensors' device: then the learning rate is its
struct MuonUpdateArgs {
  absl::Span<const MuonUpdateTensor> tensors;
  double lr = 0.0;
  const int32_t* skip = nullptr;
  DType round_working = DType::kF32;
  const StepInputs* inputs = nullptr;
};

// Errors: kInvalidArgument (counts, types, mu); kUnimplemented (types of the other device).
absl::Status CanImplement(const MuonMomentumArgs& args);
absl::Status CanImplement(const MuonUpdateArgs& args);
absl::Status MuonMomentum(const Exec& exec, const MuonMomentumArgs& args);
absl::Status MuonUpdate(const Exec& exec, const MuonUpdateArgs& args);

HEARTH_DECLARE_VERSIONS(MuonMomentum, const MuonMomentumArgs& args);
HEARTH_DECLARE_VERSIONS(MuonUpdate, const MuonUpdateArgs& args);

}  // namespace hearth::kernels
