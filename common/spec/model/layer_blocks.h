// The table of the blocks that layers are made of. A layer's row (ModelShape::rows) names some of
// them, each once, in the order in which forward runs them.
#pragma once

#include <cstdint>

namespace hearth::spec {

// clang-format off
// One row a kind: ROW(Kind, name, slots...), with the slots of its weights (model/parameter.h).
//   common/spec/plan/blocks/<name>_block.{h,cc}  describe it: <Kind>Buffers, <Kind>Gradients, k<Kind>Block;
//                                                plan/step_buffers.h includes the header
//   worker/trainer/model/blocks/<name>.cc        runs it: Make<Kind>()
#define HEARTH_LAYER_BLOCKS(ROW)                                         \
  ROW(Attention, attention, kAttnNorm, kQkv, kQNorm, kKNorm, kAttnOut)   \
  ROW(DenseFfn, ffn, kFfnNorm, kFfnIn /* gate_up or fc */, kFfnDown)
// clang-format on

#define HEARTH_KIND(Kind, ...) k##Kind,
enum class BlockKind : uint8_t { HEARTH_LAYER_BLOCKS(HEARTH_KIND) };
#undef HEARTH_KIND

}  // namespace hearth::spec
