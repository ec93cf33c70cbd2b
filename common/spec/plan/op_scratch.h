// The scratch that ops share, one at a time, in programs that do not link the kernels. The trainer
// asks its kernels.
#pragma once

#include <cstdint>

#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

// Chunks into which a GPU cuts the output projection of a micro-batch.
int64_t HeadCalls(const TrainingPlanOptions& options);

// Bytes of a chunk's logits on a GPU, and of their gradient where the output projection is
// quantised: a part of the scratch.
int64_t LogitsBytes(const TrainingPlanOptions& options);

// Scratch of the op that needs most, bytes. On a GPU exact for the output projection, which needs
// most in all presets, for products that are emulated and for Muon's; attention counts with the
// most that cuDNN's fused engines take, with and without documents. Does not count the scores that
// a deterministic backward pass stores on Hopper, up to 2 GiB. On the CPU a bound.
int64_t EstimateOpScratch(const TrainingPlanOptions& options);

}  // namespace hearth::spec
