// The parts of a gradient slot that backward does not write.
#pragma once

#include <vector>

#include "kernels/core/tensor.h"
#include "worker/trainer/model/parameter_store.h"

namespace hearth::trainer {

// By bucket: alignment and vocabulary padding in its slot. They hold what the bucket before left
// there, so they must be zeroed before the bucket begins; in whole gradients they are zeros too.
std::vector<std::vector<kernels::TensorView>> SlotGaps(
    const ParameterStore& parameters, const std::vector<spec::GradientBucket>& buckets);

}  // namespace hearth::trainer
