// The logits of a micro-batch: on a GPU a chunk at a time.
#pragma once

#include <cstdint>

#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

// A chunk has at most this many bytes.
inline constexpr int64_t kLogitsChunkBytes = int64_t{1} << 30;
// Bytes of a chunk: a part of the workspace that ops share.
int64_t LogitsBytes(const TrainingPlanOptions& options);

}  // namespace hearth::spec
