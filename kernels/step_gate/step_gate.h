// What decides on a device whether an update happens, and with which clip: the guard's verdict and
// the scalars of one optimizer step.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// Written by the host before each step, copied to the device in the order of the stream.
struct StepInputs {
  double loss_limit = 0;       // losses above it are spikes; infinity = no limit
  double grad_norm_limit = 0;  // norms above it are spikes; infinity = no limit
  double tokens = 0;           // the weights' sum if every token of the global batch counted
  double max_norm = 0;         // gradient clip; <= 0 = none
  double norm_before = 0;      // for JudgeLoss: StepState::last_norm where the state has none
  double learning_rate = 0;
  double optimizer[4] = {0, 0, 0, 0};  // what Optimizer::Scalars wrote
  int64_t step = 0;                    // 1-based number of the update
  uint32_t micro_batch = 0;            // global index within the step, of the pass being launched
  uint32_t reserved = 0;
  int32_t control[4] = {0, 0, 0, 0};  // what this rank was asked: save, pause, stop; 0
};

// Sources of a mixture whose losses are told apart.
inline constexpr int64_t kSourcesMax = 16;

// Kept on the device from step to step; the host reads a copy.
struct StepState {
  // Sums of the step's micro-batches: set to 0 by BeginStep, raised by the loss. Ranks sum all of
  // these in one go.
  double loss_sum = 0;
  double weight_sum = 0;
  double source_sums[kSourcesMax][2] = {};  // the same two of the samples of each source
  // Sums over the accumulated gradients.
  double sum_squares = 0;
  int64_t nonfinite = 0;
  // Set by JudgePart when a part was good: if parts are applied at once, some weights are new from
  // then on. Ranks take the maximum, with nonfinite.
  int32_t begun = 0;
  int32_t reserved = 0;
  // The same two sums, of the part that JudgePart judges next.
  double part_squares = 0;
  int64_t part_nonfinite = 0;
  // The judgement.
  double loss = 0;       // mean negative log likelihood
  double grad_norm = 0;  // of the gradient of that mean
  int32_t verdict = 0;   // worker/trainer/guard's Verdict: 0 good, 1 loss spike, 2 not finite, 3
                         // gradient spike
  int32_t skip = 0;      // sticky: once a step is bad, this and all later ones write nothing, until
                         // the host clears it
  float grad_scale = 1;  // multiplies every gradient in the update: to the mean, and the clip
  float unused = 0;
  double last_norm = 0;  // grad_norm of the last step that was applied; 0 = none was yet
  int64_t step = 0;      // whose numbers these are
  uint64_t weight_quantizations = 0;  // since the start of the run
  // The control word of the inputs; ranks take the maximum, so that all read the same word.
  int32_t control[4] = {0, 0, 0, 0};
  // When the step's stream (or another one, which it waits for) got there, in nanoseconds of the
  // device's own clock (StampTime); 0: nobody has said. This op itself writes only BeginStep's.
  uint64_t started_ns = 0;
  uint64_t backward_ns = 0;  // the last gradients are complete, not yet summed over the ranks
  uint64_t reduced_ns = 0;   // they are summed
  uint64_t ended_ns = 0;
};

// state: sums, verdict and times of a new step set to 0, control to the inputs', started_ns to now;
// skip, last_norm and weight_quantizations stay.
//   inputs, state : one each, on the tensors' device
absl::Status BeginStep(const Exec& exec, const StepInputs* inputs, StepState* state);

// loss = loss_sum / weight_sum; grad_norm = sqrt(sum_squares) * tokens / weight_sum;
// grad_scale = tokens / weight_sum * ClipFactor(grad_norm, max_norm) (grad_norm.h);
// verdict = 2 if loss or norm is not finite or nonfinite > 0, else 1 if loss > loss_limit, else 3
// if grad_norm > grad_norm_limit, else 0; skip stays set, or is set by a verdict that is not 0.
// last_norm = grad_norm unless skip is set.
absl::Status JudgeStep(const Exec& exec, const StepInputs* inputs, StepState* state);

// For updates that are made while backward goes on: once the loss is known, part by part, and
// JudgeStep when all gradients are known.
// JudgeLoss: loss as JudgeStep; grad_scale = tokens / weight_sum * ClipFactor(n, max_norm), where n
// is the norm of the last applied step (last_norm, or norm_before where that is 0; 1 in place of
// the factor where both are 0); skip stays set, or is set by a loss that is not finite or above
// loss_limit.
absl::Status JudgeLoss(const Exec& exec, const StepInputs* inputs, StepState* state);
// JudgePart: adds part_squares and part_nonfinite to sum_squares and nonfinite. skip stays set, or
// is set where these are not finite, or above 0; if it is not set, begun = 1.
absl::Status JudgePart(const Exec& exec, StepState* state);

// *where = now, in nanoseconds of a clock that never goes back: CUDA %globaltimer (its steps may be
// as long as 1 us), CPU the machine's monotonic clock. Differences of one device's stamps count.
//   where : on the tensors' device
absl::Status StampTime(const Exec& exec, uint64_t* where);

HEARTH_DECLARE_VERSIONS(BeginStep, const StepInputs* inputs, StepState* state);
HEARTH_DECLARE_VERSIONS(JudgeStep, const StepInputs* inputs, StepState* state);
HEARTH_DECLARE_VERSIONS(JudgeLoss, const StepInputs* inputs, StepState* state);
HEARTH_DECLARE_VERSIONS(JudgePart, StepState* state);
HEARTH_DECLARE_VERSIONS(StampTime, uint64_t* where);

}  // namespace hearth::kernels
