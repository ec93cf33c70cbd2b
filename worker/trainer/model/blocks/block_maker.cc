#include "worker/trainer/model/blocks/block_maker.h"

#include "common/base/status_macros.h"
#include "common/spec/plan/blocks/block.h"

namespace hearth::trainer {
namespace {

struct Maker {
  const spec::Block* block;
  std::unique_ptr<SubBlock> (*make)(const ModelContext& context, const spec::PlacedBlock& placed);
};

#define HEARTH_MAKER(Kind, ...) {&spec::k##Kind##Block, &Make##Kind},
constexpr Maker kMakers[] = {HEARTH_LAYER_BLOCKS(HEARTH_MAKER)};
#undef HEARTH_MAKER

}  // namespace

std::unique_ptr<SubBlock> MakeBlock(const ModelContext& context, const spec::PlacedBlock& placed) {
  for (const Maker& maker : kMakers) {
    if (maker.block == placed.block) {
      return maker.make(context, placed);
    }
  }
  HEARTH_CHECK(false, "a layer is made of rows of the table");
  return nullptr;
}

}  // namespace hearth::trainer
