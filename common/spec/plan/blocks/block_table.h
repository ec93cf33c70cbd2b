// What models are made of: the embedding, the blocks of layers (model/layer_blocks.h), the head.
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
  int layer = -1;      // -1 outside the layers
  int number = 0;      // in the order of forward; StepTimeline counts so
  bool first = false;  // of its layer
};

// Those of the model, in the order of forward and of the parameter table.
std::vector<PlacedBlock> BlocksOf(const ModelShape& shape);
// Those of one block, in the same order; empty: the model has none.
std::vector<PlacedBlock> PlacesOf(const Block& block, const ModelShape& shape);

}  // namespace hearth::spec
