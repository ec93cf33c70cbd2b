// AdamW over many tensors in one call; PyTorch's torch.optim.AdamW (amsgrad off, decoupled decay):
//   g = grad * grad_scale;  p *= 1 - lr*wd;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)
// Arithmetic in T (CPU: the gradient's type, kF32 or kF64; CUDA: kF32), scalars prepared in double.
// Bits independent of exec.threads and of how tensors are grouped into calls; the CPU's and
// CUDA's differ by roundings (fused multiply-adds).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/door.h"
#include "kernels/core/state_scales.h"
#include "kernels/core/weight_update.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {

// Indices into StepInputs::optimizer: 1 - beta1^step and 1 - beta2^step.
inline constexpr int kBiasCorrection1 = 0;
inline constexpr int kBiasCorrection2 = 1;

// One parameter tensor, or the shard of one. All views have the same number of elements, but codes
// of moments in blocks: they are kU8 views of ceil(elements * bits / 8) bytes, 4-byte aligned.
// Both moments are in blocks or none: (dynamic signed 8, dynamic unsigned 8) or (dynamic signed 4,
// linear unsigned 4). One pass decodes them, updates in fp32 (CPU: T), and encodes what it has with
// the largest magnitude of each block; a shard begins at a block.
// Bytes moved for an element with FP32 masters, G gradients and BF16 working weights, which are the
// floor:
//   moments fp32 26 + G, bf16 18 + G, int8 14 + 4/64 + G, int4 12 + 8/64 + G (G: 4 or 2);
//   masters in BF16 that are the working weights: 6 less
//   CPU : grad and working T = kF32 or kF64; master, m, v: T or kBF16 each
//   CUDA: grad G, working A; master, m, v: kF32 or kBF16 each
// bf16 storage rounds to nearest even after the update (master: see UpdateArgs). bf16 v with beta2
// close to 1 stands still where an increment is below half of its last place. `working` is
// optional; first_element is a multiple of 4.
struct AdamWTensor : UpdatedWeight {
  TensorView m;  // updated
  TensorView v;  // updated
  StateBlocks m_blocks = {};
  StateBlocks v_blocks = {};
  TensorView grad;  // read
};

// grad_scale : optional, one float on the tensors' device: to the mean, and the clip factor
// step       : t >= 1, of the bias corrections, which `inputs` has too
struct AdamWArgs : UpdateArgs {
  absl::Span<const AdamWTensor> tensors;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  const float* grad_scale = nullptr;
};

// Errors: kInvalidArgument (counts, types, betas); kUnimplemented (types of the other device).
size_t AdamWWorkspaceBytes(const AdamWArgs& args);  // 0
HEARTH_DECLARE_OP(AdamWStep, AdamWArgs);

}  // namespace hearth::kernels
