#pragma once

#include <memory>

#include "worker/trainer/optim/optimizer.h"

namespace hearth::trainer {

// AdamW with decoupled decay; state tensors 0 and 1 are the moments.
std::unique_ptr<Optimizer> MakeAdamW(const OptimizerContext& context);

}  // namespace hearth::trainer
