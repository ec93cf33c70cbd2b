// Norm, q|k|v projection, QK-norm and rope, attention, output projection.
#pragma once

#include "common/spec/plan/blocks/normed_buffers.h"
#include "common/spec/plan/memory_plan.h"

namespace hearth::spec {

struct Block;

// What one layer's keeps for backward; N tokens, [N, width] where nothing else is said.
struct AttentionBuffers : NormedBuffers {
  BufferId qkv;
  BufferId rotated;   // of QK-norm, whose backward needs qkv too; none: in place of qkv
  BufferId qk_stats;  // [N, Hq + Hkv]
  BufferId attention;
  BufferId attention_columns;  // as wgrad reads it quantised
  BufferId lse;                // [B, Hq, T]
};

// Gradients, which all layers share.
struct AttentionGradients {
  BufferId attention;
  BufferId qkv;
};

extern const Block kAttentionBlock;

}  // namespace hearth::spec
