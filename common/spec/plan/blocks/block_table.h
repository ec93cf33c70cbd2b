// The table of blocks: what a model can be made of.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/plan/blocks/block.h"

namespace hearth::spec {

// In the order in which forward runs them. Rows live for ever.
absl::Span<const Block* const> Blocks();

struct PlacedBlock {
  const Block* block = nullptr;
  int layer = -1;  // -1 outside the layers
};

// Those of the model, in the order of forward and of the parameter table.
std::vector<PlacedBlock> BlocksOf(const ModelShape& shape);

}  // namespace hearth::spec
