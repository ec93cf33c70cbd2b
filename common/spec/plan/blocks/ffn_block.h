// The dense feed-forward block: norm, projection (gate|up or fc), activation function, down
// projection.
#pragma once

#include "common/spec/plan/blocks/normed_buffers.h"
#include "common/spec/plan/memory_plan.h"

namespace hearth::spec {

struct Block;

// What one layer's keeps for backward; N tokens, [N, width] where nothing else is said.
struct DenseFfnBuffers : NormedBuffers {
  BufferId projected;  // input of the activation function
  BufferId kept;       // the same in 8 bits (kernels/core/kept_input.h)
  BufferId activated;
  BufferId activated_columns;
};

// Gradients, which all layers share.
struct DenseFfnGradients {
  BufferId activated;
};

extern const Block kDenseFfnBlock;

}  // namespace hearth::spec
