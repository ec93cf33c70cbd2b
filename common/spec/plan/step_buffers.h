// Typed handles of the buffers of a training plan: who plans a buffer fills its handle, who binds
// the engine reads it, and its name is for people alone. A handle of none: this run has no such
// buffer.
#pragma once

#include <vector>

#include "common/spec/plan/memory_plan.h"

namespace hearth::spec {

// What one attention sub-block keeps for backward; N tokens, [N, width] where nothing else is said.
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
  // Backward makes attention_columns from what else is kept, at every level of recomputation.
  bool backward_makes_columns = false;
};

// What one feed-forward sub-block keeps.
struct FfnBuffers {
  BufferId input;
  BufferId norm;
  BufferId norm_columns;
  BufferId norm_stats;
  BufferId projected;  // input of the activation function
  BufferId kept;       // the same in 8 bits (kernels/core/kept_input.h)
  BufferId activated;
  BufferId activated_columns;
  // Backward makes activated_columns from what else is kept, at every level of recomputation.
  bool backward_makes_columns = false;
};

struct LayerBuffers {
  AttentionBuffers attention;
  FfnBuffers ffn;
};

// Final norm and output projection.
struct HeadBuffers {
  BufferId input;
  BufferId norm;
  BufferId norm_stats;
  BufferId rows;  // the norm's output in FP8
  BufferId columns;
};

// Gradients of activations, which all layers share.
struct GradientBuffers {
  BufferId stream;
  BufferId norm;   // of a norm's output
  BufferId delta;  // of what a sub-block adds; none without dropout
  BufferId activated;
  BufferId attention;
  BufferId qkv;
};

// The micro-batch, [N] each.
struct TokenBuffers {
  BufferId tokens;
  BufferId targets;
  BufferId positions;
  BufferId segments;
  BufferId loss_weight;
};

// The scales of n quantised weights: one float for each of 3 n sites unless a field says otherwise.
struct ScaleBuffers {
  BufferId amax;
  BufferId scale;
  BufferId scale_inverse;  // four floats each
  BufferId ring;           // [history, 3 n]
  BufferId cursors;        // [2] i64
};

struct QuantBuffers {
  ScaleBuffers own;
  ScaleBuffers fallback;
  BufferId column_scale_inverse;  // block scales
  BufferId counts;                // [3 n, 2] u64
  BufferId counted_amax;
  BufferId counted_on_host;  // both, counts first
  BufferId weight_rows;
  BufferId weight_columns;
  BufferId forms;  // FormsLayout
};

// Parameter-shaped.
struct StoreBuffers {
  BufferId parameters;
  BufferId masters;  // none: the parameters themselves
  BufferId gradients;
  std::vector<BufferId> states;  // in the order of the optimizer's row
};

// Host memory of a micro-batch on its way to a GPU.
struct StagingBuffers {
  BufferId batch;
  BufferId inputs;
  BufferId state;
};

struct StepBuffers {
  StoreBuffers store;
  TokenBuffers batch;
  std::vector<LayerBuffers> layers;
  BufferId delta;  // what a sub-block adds to the residual stream
  HeadBuffers head;
  GradientBuffers gradients;
  QuantBuffers quant;
  BufferId step_inputs;
  BufferId step_state;
  std::vector<StagingBuffers> staging;  // by slot; empty on the CPU
  BufferId reduction;                   // a bucket in gradients.reduce_dtype
  BufferId workspace;                   // scratch of the largest op
};

// A placed plan and its handles.
struct TrainingPlan : MemoryPlan {
  StepBuffers ids;
};

}  // namespace hearth::spec
