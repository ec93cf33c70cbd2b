#include "common/spec/plan/blocks/block_table.h"

#include "common/spec/plan/blocks/embedding_block.h"
#include "common/spec/plan/blocks/head_block.h"
#include "common/spec/plan/step_buffers.h"

namespace hearth::spec {
namespace {

// The layers' blocks by their kinds, between what stands outside the layers.
#define HEARTH_BLOCK(Kind, ...) , &k##Kind##Block
constexpr const Block* kBlocks[] = {&kEmbeddingBlock HEARTH_LAYER_BLOCKS(HEARTH_BLOCK),
                                    &kHeadBlock};
#undef HEARTH_BLOCK

}  // namespace

absl::Span<const Block* const> Blocks() {
  return kBlocks;
}

std::vector<PlacedBlock> BlocksOf(const ModelShape& shape) {
  std::vector<PlacedBlock> blocks = {{.block = &kEmbeddingBlock}};
  const auto add = [&blocks](const Block* block, int layer, bool first) {
    blocks.push_back({block, layer, static_cast<int>(blocks.size()), first});
  };
  for (int layer = 0; layer < shape.layers; ++layer) {
    bool first = true;
    for (const BlockKind kind : shape.rows[static_cast<size_t>(layer)]) {
      add(kBlocks[1 + static_cast<size_t>(kind)], layer, first);
      first = false;
    }
  }
  add(&kHeadBlock, -1, false);
  return blocks;
}

std::vector<PlacedBlock> PlacesOf(const Block& block, const ModelShape& shape) {
  std::vector<PlacedBlock> places = BlocksOf(shape);
  std::erase_if(places, [&block](const PlacedBlock& placed) { return placed.block != &block; });
  return places;
}

}  // namespace hearth::spec
