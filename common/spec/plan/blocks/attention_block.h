// Norm, q|k|v projection, QK-norm and rope, attention, output projection.
#pragma once

#include "common/spec/plan/memory_plan.h"

namespace hearth::spec {

struct Block;

// What one layer's keeps for backward; N tokens, [N, width] where nothing else is said.
struct AttentionBuffers {
  BufferId input;         // of the norm, the residual stream
  BufferId norm;          // its output, plain
  BufferId norm_columns;  // and as wgrad reads it quantised
  BufferId norm_stats;    // [2, N] mean and rstd
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
