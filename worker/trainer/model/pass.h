// One micro-batch on its way through the model.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/spec/recipe/precision.h"
#include "kernels/core/exec.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/model/weight_source.h"

namespace hearth::trainer {

// What happens between the parts of a pass. Moments are StepTimeline's
// (common/spec/plan/training_plan.h).
class PassHook {
 public:
  virtual ~PassHook() = default;
  // The launches that follow read the weights of the part at `moment` of the forward pass.
  virtual absl::Status BeforeForward(const kernels::Exec& exec, int32_t moment) = 0;
  // The launches that follow write gradients of the part at `moment` of the backward pass; those
  // that are not overwritten are zeroed first, unless the pass accumulates.
  virtual absl::Status BeforeBackward(const kernels::Exec& exec, int32_t moment) = 0;
  // The gradients of the part at `moment` of the backward pass are launched and complete, in the
  // format that they have.
  virtual absl::Status AfterBackward(const kernels::Exec& exec, int32_t moment) = 0;
};

struct Pass {
  // Key of dropout.
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t micro_batch = 0;  // global index within the step
  bool dropout = false;      // training only
  // Add to the gradients. False: weight gradients of linear layers are overwritten, the others set
  // to zero before. So it is for a step's first micro-batch, and for all where gradients are
  // divided: the sums are then kept elsewhere.
  bool accumulate = true;
  // What linear layers run in.
  spec::StepFormat format = {};
  // Count underflow and saturation of what is quantised (QuantState::Counted). Never in a launch
  // that is recorded.
  bool count = false;
  // AttentionArgs::documents of the micro-batch; 0: any number.
  int64_t documents = 0;
  // Record largest magnitudes for delayed scaling; only in training.
  bool record = false;
  // Where a replayed launch reads step and micro_batch, on the tensors' device. Null: the fields
  // above.
  const kernels::StepInputs* position = nullptr;
  // Null: none.
  PassHook* hook = nullptr;
  // [plan.sources, 2] on the tensors' device: ForwardBackward adds the loss's two sums of the
  // samples from each source. Null: nobody asks; else the plan has batch.sources.
  double* source_sums = nullptr;
  // What brings divided weights together; null where they are whole.
  WeightSource* weights = nullptr;
  // Raised by the number of divided weights that the pass quantises as they arrive
  // (kernels/quantize/quantize.h); null: nobody counts.
  uint64_t* weight_quantizations = nullptr;
};

}  // namespace hearth::trainer
