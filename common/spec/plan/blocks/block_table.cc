#include "common/spec/plan/blocks/block_table.h"

#include "common/spec/plan/blocks/attention_block.h"
#include "common/spec/plan/blocks/embedding_block.h"
#include "common/spec/plan/blocks/ffn_block.h"
#include "common/spec/plan/blocks/head_block.h"

namespace hearth::spec {
namespace {

constexpr const Block* kBlocks[] = {&kEmbeddingBlock, &kAttentionBlock, &kDenseFfnBlock,
                                    &kHeadBlock};

void AddOutside(GradientUnit unit, std::vector<PlacedBlock>& out) {
  for (const Block* block : kBlocks) {
    if (block->of == nullptr && block->unit == unit) {
      out.push_back({block, -1});
    }
  }
}

}  // namespace

absl::Span<const Block* const> Blocks() {
  return kBlocks;
}

std::vector<PlacedBlock> BlocksOf(const ModelShape& shape) {
  std::vector<PlacedBlock> blocks;
  AddOutside(GradientUnit::kEmbeddings, blocks);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const LayerRow row = shape.Row(layer);
    for (const Block* block : kBlocks) {
      if (block->of != nullptr && block->of(row)) {
        blocks.push_back({block, layer});
      }
    }
  }
  AddOutside(GradientUnit::kHead, blocks);
  return blocks;
}

}  // namespace hearth::spec
