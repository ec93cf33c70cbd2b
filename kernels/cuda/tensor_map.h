// Descriptions of tensors for TMA (cuda/hopper.cuh).
#pragma once

#include <cuda.h>

#include "absl/status/status.h"
#include "kernels/cuda/tensor_boxes.h"

namespace hearth::kernels::cuda {

// kUnavailable: the driver has no TMA; kInvalidArgument: it does not take the tensor.
absl::Status MakeTensorMap(const TensorBoxes& tensor, CUtensorMap& map);

}  // namespace hearth::kernels::cuda
