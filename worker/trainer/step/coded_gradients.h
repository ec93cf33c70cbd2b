// Gradients that wait for the update in E4M3 (gradients.store: fp8): a complete bucket is coded
// from its slot, and the update decodes it into the slot again. Nothing is added up in E4M3. The
// step is judged by the gradients before coding and updated with the decoded ones.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "worker/trainer/step/bucket_pass.h"

namespace hearth::trainer {

class CodedGradients : public BucketPass {
 public:
  using BucketPass::BucketPass;

  // Once the step is judged: bucket by bucket.
  absl::Status UpdateAll(const kernels::Exec& exec);

 protected:
  absl::Status Take(const kernels::Exec& exec, size_t b) override;

 private:
  // Codes and scales of the rank's part of bucket `b`, [n] and [n / kReduceBlock].
  kernels::TensorView Codes(size_t b) const;
  kernels::TensorView Scales(size_t b) const;
};

}  // namespace hearth::trainer
