// The step gate's arithmetic, the same operations in the same order on both devices: the bits are
// equal (doubles, IEEE division and square root, no fused multiply-add).
#pragma once

#include <cmath>

#include "common/formats/hd.h"
#include "kernels/grad_norm/clip.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {

HEARTH_HD inline void ResetState(const StepInputs& inputs, uint64_t now_ns, StepState& state) {
  // Everything but `skip` and what is kept from step to step: a refusal holds for the steps in
  // flight behind it, until the host has rewound.
  state.loss_sum = 0;
  state.weight_sum = 0;
  for (int64_t s = 0; s < kSourcesMax; ++s) {
    state.source_sums[s][0] = 0;
    state.source_sums[s][1] = 0;
  }
  state.sum_squares = 0;
  state.nonfinite = 0;
  state.begun = 0;
  state.part_squares = 0;
  state.part_nonfinite = 0;
  state.loss = 0;
  state.grad_norm = 0;
  state.verdict = 0;
  state.grad_scale = 1;
  state.step = inputs.step;
  for (int i = 0; i < 4; ++i) {
    state.control[i] = inputs.control[i];
  }
  state.started_ns = now_ns;
  state.backward_ns = 0;
  state.reduced_ns = 0;
  state.ended_ns = 0;
}

// Rounded by itself: nvcc would fuse it with the sum in ClipFactorOf.
HEARTH_HD inline double Product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

HEARTH_HD inline void JudgeState(const StepInputs& inputs, StepState& state) {
  // Backward has divided by the number of tokens, which is known beforehand. The mean is over the
  // weights of the tokens that count, which are known only now.
  const double mean = inputs.tokens / state.weight_sum;
  state.loss = state.loss_sum / state.weight_sum;
  state.grad_norm = Product(sqrt(state.sum_squares), mean);
  state.grad_scale = static_cast<float>(
      Product(mean, static_cast<double>(ClipFactorOf(state.grad_norm, inputs.max_norm))));
  const bool finite = IsFinite(state.loss) && IsFinite(state.grad_norm) && state.nonfinite <= 0;
  // What is not finite comes first: NaN is above no limit.
  state.verdict = !finite                                    ? 2
                  : state.loss > inputs.loss_limit           ? 1
                  : state.grad_norm > inputs.grad_norm_limit ? 3
                                                             : 0;
  state.skip = state.skip != 0 || state.verdict != 0 ? 1 : 0;
  if (state.skip == 0) {
    state.last_norm = state.grad_norm;
  }
}

HEARTH_HD inline void JudgeLossState(const StepInputs& inputs, StepState& state) {
  const double mean = inputs.tokens / state.weight_sum;
  state.loss = state.loss_sum / state.weight_sum;
  const double norm = state.last_norm > 0 ? state.last_norm : inputs.norm_before;
  const float clip = norm > 0 ? ClipFactorOf(norm, inputs.max_norm) : 1.0F;
  state.grad_scale = static_cast<float>(Product(mean, static_cast<double>(clip)));
  if (!IsFinite(state.loss) || state.loss > inputs.loss_limit) {
    state.skip = 1;
  }
}

HEARTH_HD inline void JudgePartState(StepState& state) {
  state.sum_squares += state.part_squares;
  state.nonfinite += state.part_nonfinite;
  if (state.nonfinite > 0 || !IsFinite(state.sum_squares)) {
    state.skip = 1;
  }
  if (state.skip == 0) {
    state.begun = 1;
  }
}

}  // namespace hearth::kernels
