// One scale for each tensor, from its magnitudes in earlier steps: whoever produces the tensor
// writes the quantised values.
#pragma once

#include "worker/trainer/precision/per_tensor/tensor_scaling.h"

namespace hearth::trainer {

class DelayedScaling : public TensorScaling {
 public:
  using TensorScaling::TensorScaling;

  absl::Status UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const override;

 private:
  std::shared_ptr<const OperandForm> BindActivation(Role role,
                                                    int k,
                                                    const OperandBuffers& buffers) const override;
};

}  // namespace hearth::trainer
