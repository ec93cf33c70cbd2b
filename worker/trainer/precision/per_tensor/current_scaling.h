// One scale for each tensor, from its own magnitude: it is measured before it is quantised, so that
// nothing is left to update after a step.
#pragma once

#include "worker/trainer/precision/per_tensor/tensor_scaling.h"

namespace hearth::trainer {

class CurrentScaling : public TensorScaling {
 public:
  using TensorScaling::TensorScaling;

 private:
  std::shared_ptr<const OperandForm> BindActivation(Role role,
                                                    int k,
                                                    const OperandBuffers& buffers) const override;
};

}  // namespace hearth::trainer
