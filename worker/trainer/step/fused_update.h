// Updates that are made while backward goes on (optimizer.fused): a complete bucket is applied to
// the weights while it is in its slot.
//
// This is safe because backward reads no weight of a bucket once its gradients are complete. The
// loss is known before the first update, so a step with a bad loss is refused as a whole. Gradients
// are known only bucket by bucket. If one is not finite, its bucket and all later ones are not
// applied, and the step can be neither refused nor done again (StepState::begun). The clip uses the
// norm of the step before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "worker/trainer/step/bucket_pass.h"

namespace hearth::trainer {

class FusedUpdate : public BucketPass {
 public:
  using BucketPass::BucketPass;

  absl::Status Begin(const kernels::Exec& exec) override;
  absl::Status AfterBackward(const kernels::Exec& exec, int32_t moment) override;

 protected:
  absl::Status Take(const kernels::Exec& exec, size_t b) override;
};

}  // namespace hearth::trainer
