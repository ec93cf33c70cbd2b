// What backward leaves as it is where buckets of gradients are made one after the other.
#pragma once

#include <vector>

#include "kernels/core/tensor.h"
#include "worker/trainer/model/parameter_store.h"

namespace hearth::trainer {

// By bucket: alignment and vocabulary padding in its slot, which hold what the bucket before has
// left there. Zeroed before the bucket begins they are as in whole gradients.
std::vector<std::vector<kernels::TensorView>> SlotGaps(
    const ParameterStore& parameters, const std::vector<spec::GradientBucket>& buckets);

}  // namespace hearth::trainer
