// Typed handles of the buffers of a training plan. The code that plans a buffer fills its handle;
// the code that binds the engine reads it. A buffer's name is for people only. A handle of none:
// this run has no such buffer.
#pragma once

#include <vector>

#include "common/spec/model/layer_blocks.h"
#include "common/spec/model/parameter.h"
#include "common/spec/plan/blocks/attention_block.h"
#include "common/spec/plan/blocks/ffn_block.h"
#include "common/spec/plan/blocks/head_block.h"
#include "common/spec/plan/memory_plan.h"

namespace hearth::spec {

// What a weight's three products read. A block has the same handles under names of their own.
struct SiteBuffers {
  Slot weight = Slot::kTokenEmbedding;
  int layer = -1;  // -1 outside the layers
  BufferId x;
  BufferId x_columns;  // as wgrad reads it quantised
  BufferId dy;         // none for the head: the loss has it a chunk at a time
  // Backward makes x_columns from what else is kept, at every level of recomputation.
  bool backward_makes_columns = false;
  // Something else is quantised between dgrad and wgrad: FormsLayout::waiting_dy_columns.
  bool dy_waits = false;
};

// By the names of the rows of model/layer_blocks.h. A block that the layer lacks has no buffers.
struct LayerBuffers {
  BufferId input;  // of the layer's first block: where the layer before leaves the residual stream
#define HEARTH_BUFFERS(Kind, name, ...) Kind##Buffers name;
  HEARTH_LAYER_BLOCKS(HEARTH_BUFFERS)
#undef HEARTH_BUFFERS
};

// Gradients of activations, which all layers share.
struct GradientBuffers {
  BufferId stream;
  BufferId norm;   // of a norm's output
  BufferId delta;  // of what a sub-block adds; none without dropout
#define HEARTH_GRADIENTS(Kind, name, ...) Kind##Gradients name;
  HEARTH_LAYER_BLOCKS(HEARTH_GRADIENTS)
#undef HEARTH_GRADIENTS
};

// The micro-batch, [N] each.
struct TokenBuffers {
  BufferId tokens;
  BufferId targets;
  BufferId positions;
  BufferId starts;       // position in its sample at which each token's document begins
  BufferId loss_weight;  // of each target
  // Each target's negative log-likelihood, and whether no token is likelier; of a plan that keeps
  // scores.
  BufferId nll;
  BufferId top;
  BufferId scores_on_host;  // both, nll first; none on the CPU
};

// Byte offsets in the buffer QuantBuffers::forms of the quantised operands of the GEMM at hand,
// each on a 256-byte boundary; N = tokens of a micro-batch.
struct FormsLayout {
  int64_t rows = 0;                // x of fprop, [N, in]
  int64_t dy_rows = 0;             // dy of dgrad, [N, out]
  int64_t dy_columns = 0;          // dy of wgrad, [out, N]
  int64_t waiting_dy_columns = 0;  // the same for sites whose dy waits; without any, dy_columns
  int64_t bytes = 0;
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
  BufferId forms;
  FormsLayout layout;  // of `forms`
};

// Parameter-shaped.
struct StoreBuffers {
  BufferId parameters;
  std::vector<BufferId> masters;    // of each of PlaceMasters
  std::vector<BufferId> gradients;  // of each of GradientGroups
  std::vector<BufferId> states;     // of each of PlaceStates
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
  std::vector<SiteBuffers> sites;  // in the order of forward
  BufferId delta;                  // what a sub-block adds to the residual stream
  HeadBuffers head;
  GradientBuffers gradients;
  QuantBuffers quant;
  BufferId step_inputs;
  BufferId step_state;
  std::vector<StagingBuffers> staging;  // by slot; empty on the CPU
  BufferId reduction;                   // a bucket in gradients.reduce_dtype
  BufferId workspace;                   // scratch of the largest op

  // `weight` is one of the model's that a product reads.
  const SiteBuffers& Site(Slot weight, int layer) const;
};

// A placed plan and its handles.
struct TrainingPlan : MemoryPlan {
  StepBuffers ids;
};

}  // namespace hearth::spec
