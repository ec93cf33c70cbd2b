// Updates that are made while backward goes on (optimizer.fused): a bucket that is complete is
// updated with in its slot.
//
// Backward reads no weight of a bucket once its gradients are complete. The loss is known before
// the first update, so a step with a bad one is refused as a whole. What its gradients are is known
// bucket by bucket: from the first one on that is not finite nothing more is updated, and the step
// can be neither refused nor done again (StepState::begun). The clip is by the norm of the step
// before.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "worker/trainer/step/bucket_pass.h"

namespace hearth::trainer {

class FusedUpdate : public BucketPass {
 public:
  using BucketPass::BucketPass;

  absl::Status Begin(const kernels::Exec& exec) override;

 protected:
  absl::Status Take(const kernels::Exec& exec, size_t b) override;
};

}  // namespace hearth::trainer
