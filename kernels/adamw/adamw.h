// AdamW over many tensors in one call; PyTorch's torch.optim.AdamW (amsgrad off, decoupled decay):
//   g = grad * grad_scale;  p *= 1 - lr*wd;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)
// Arithmetic in T (kF32 or kF64), scalars prepared in double. Bits independent of exec.threads.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

// One parameter tensor, or the shard of one. All views have the same number of elements.
struct AdamWTensor {
  TensorView master;      // T, updated
  TensorView m;           // T, updated
  TensorView v;           // T, updated
  TensorView grad;        // T, read
  TensorView working;     // T, optional: round_working(master) after the update; may alias master
  double lr_scale = 1.0;  // multiplies lr
  double weight_decay = 0.0;  // 0 for norms, biases, ...
};

// grad_scale : optional, one float beside the tensors (host memory on the CPU): the clip factor
// skip       : optional, one int32 beside the tensors: if it is not 0 nothing is written at all
// step       : t >= 1, of the bias corrections
struct AdamWArgs {
  absl::Span<const AdamWTensor> tensors;
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  int64_t step = 1;
  const float* grad_scale = nullptr;
  const int32_t* skip = nullptr;
  DType round_working = DType::kF32;
};

absl::Status CanImplement(const AdamWArgs& args);
size_t AdamWWorkspaceBytes(const AdamWArgs& args);  // 0
absl::Status AdamWStep(const Exec& exec, const AdamWArgs& args);

}  // namespace hearth::kernels
