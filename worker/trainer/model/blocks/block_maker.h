// How the engine makes the blocks of layers: Make<Kind>() for each row of
// common/spec/model/layer_blocks.h, in a file each beside this one.
#pragma once

#include <memory>

#include "common/spec/model/layer_blocks.h"
#include "common/spec/plan/blocks/block_table.h"
#include "worker/trainer/model/sub_block.h"

namespace hearth::trainer {

#define HEARTH_MAKER(Kind, ...)                                     \
  std::unique_ptr<SubBlock> Make##Kind(const ModelContext& context, \
                                       const spec::PlacedBlock& placed);
HEARTH_LAYER_BLOCKS(HEARTH_MAKER)
#undef HEARTH_MAKER

// The block that stands there, which is one of a layer.
std::unique_ptr<SubBlock> MakeBlock(const ModelContext& context, const spec::PlacedBlock& placed);

}  // namespace hearth::trainer
