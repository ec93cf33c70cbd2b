#include "worker/trainer/step/fused_update.h"

#include "common/base/status_macros.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::trainer {

absl::Status FusedUpdate::Begin(const kernels::Exec& exec) {
  HEARTH_RETURN_IF_ERROR(BucketPass::Begin(exec));
  // Each bucket's update measures its weights.
  return engine().quant().ForgetWeightAmax(exec);
}

absl::Status FusedUpdate::AfterBackward(const kernels::Exec& exec, int32_t moment) {
  if (exchange() != nullptr && moment == time().Head()) {
    // Before the first bucket is taken: the losses of all ranks decide whether it is applied.
    HEARTH_RETURN_IF_ERROR(exchange()->ReduceLoss(exec));
  }
  return BucketPass::AfterBackward(exec, moment);
}

absl::Status FusedUpdate::Take(const kernels::Exec& exec, size_t b) {
  if (b == 0) {
    HEARTH_RETURN_IF_ERROR(kernels::JudgeLoss(exec, engine().step_inputs(), engine().step_state()));
  }
  HEARTH_RETURN_IF_ERROR(AddSquares(exec, b));
  return engine().optimizer(b).Step(exec, Update());
}

}  // namespace hearth::trainer
