// The scalars of AdamW's step for one tensor, in the arithmetic's type; prepared in double.
#pragma once

namespace hearth::kernels {

template <typename T>
struct AdamWScalars {
  T grad_scale;
  T shrink;  // 1 - lr * weight_decay
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T step_size;   // lr / (1 - beta1^t)
  T root_bias2;  // 1 / sqrt(1 - beta2^t)
  T eps;
};

}  // namespace hearth::kernels
