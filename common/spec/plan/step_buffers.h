// Typed handles of the buffers of a training plan. The code that plans a buffer fills its handle;
// the code that binds the engine reads it. A buffer's name is for people only. An empty
// handle means that this run has no such buffer.
#pragma once

#include <cstdint>
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
  // Something else is quantised between dgrad and wgrad, maybe by the kernel of dgrad itself:
  // FormsLayout::waiting_dy_rows and _columns.
  bool dy_waits = false;
  // The kernel that reads x's rows may write others at the same time: FormsLayout::rows_apart.
  bool x_rows_apart = false;
};

// What a layer keeps for backward in a slot that a later layer takes over (kKeptSlots), and its
// place on the host meanwhile, as large.
struct AwayBuffer {
  BufferId slot;
  BufferId host;
};

// By the names of the rows of model/layer_blocks.h. A block that the layer lacks has no buffers.
struct LayerBuffers {
  BufferId input;  // of the layer's first block: where the layer before leaves the residual stream
  std::vector<AwayBuffer> away;  // offload.activations
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

// Byte offsets of a micro-batch in host memory: n elements of four bytes each, and one for each of
// the samples that say where they are from.
struct BatchLayout {
  int64_t tokens = 0;
  int64_t targets = 0;
  int64_t positions = 0;
  int64_t starts = 0;
  int64_t loss_weight = 0;
  int64_t sources = 0;
  int64_t bytes = 0;

  static constexpr BatchLayout Of(int64_t n, int64_t samples) {
    const int64_t each = n * 4;
    return {0, each, 2 * each, 3 * each, 4 * each, 5 * each, 5 * each + samples * 4};
  }
};

// The same of its scores.
struct ScoresLayout {
  int64_t nll = 0;
  int64_t top = 0;
  int64_t bytes = 0;

  static constexpr ScoresLayout Of(int64_t n) { return {0, n * 4, n * 8}; }
};

// The micro-batch, [N] each.
struct TokenBuffers {
  BufferId tokens;
  BufferId targets;
  BufferId positions;
  BufferId starts;       // position in its sample at which each token's document begins
  BufferId loss_weight;  // of each target
  // [B], the source of each sample; none unless the losses of several sources are told apart.
  BufferId sources;
  // Each target's negative log-likelihood, and whether no token is likelier; of a plan that keeps
  // scores.
  BufferId nll;
  BufferId top;
  BufferId scores_on_host;  // both; none on the CPU
  ScoresLayout scores_layout;
};

// Byte offsets in the buffer QuantBuffers::forms of the quantised operands of the GEMM at hand,
// each on a 256-byte boundary; N = tokens of a micro-batch.
struct FormsLayout {
  int64_t rows = 0;        // x of fprop, [N, in]
  int64_t rows_apart = 0;  // the same for sites whose x's rows lie apart; without any, rows
  int64_t dy_rows = 0;     // dy of dgrad, [N, out]
  int64_t dy_columns = 0;  // dy of wgrad, [out, N]
  // Both for sites whose dy waits; without any, dy_rows and dy_columns.
  int64_t waiting_dy_rows = 0;
  int64_t waiting_dy_columns = 0;
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

// Byte offsets in host memory of what `sites` tensors have counted.
struct CountsLayout {
  int64_t counts = 0;  // [sites, 2] u64
  int64_t amax = 0;    // [sites] f32
  int64_t bytes = 0;

  static constexpr CountsLayout Of(int64_t sites) { return {0, sites * 16, sites * 20}; }
};

struct QuantBuffers {
  ScaleBuffers own;
  ScaleBuffers fallback;
  BufferId column_scale_inverse;  // block scales
  BufferId counts;                // [3 n, 2] u64
  BufferId counted_amax;
  BufferId counted_on_host;  // both; none on the CPU
  CountsLayout counts_layout;
  BufferId weight_rows;
  BufferId weight_columns;
  BufferId forms;
  FormsLayout layout;  // of `forms`
};

// Parameter-shaped.
struct StoreBuffers {
  BufferId parameters;  // divided: this rank's part of each bucket; without those in blocks
  BufferId blocks;      // the same of weights in blocks (weights.store)
  // Each of WeightUnits::slots has one for its elements and one for its bytes of blocks. None where
  // it has no such room.
  std::vector<BufferId> weight_slots;
  std::vector<BufferId> block_slots;
  BufferId decoded;               // weights in blocks, as the update at hand has them in fp32
  std::vector<BufferId> masters;  // of each of PlaceMasters
  // One for each of GradientGroups; with divided gradients this rank's part of it. Empty if updates
  // go by bucket.
  std::vector<BufferId> gradients;
  std::vector<BufferId> gradient_slots;  // of each of SlotsOf
  // Coded gradients, and their scales; divided: this rank's part of each bucket.
  BufferId gradient_codes;
  BufferId gradient_scales;
  std::vector<BufferId> states;  // of each of PlaceStates
  // Slots through which updates stream masters and states; empty unless some of these are in the
  // host's memory.
  std::vector<BufferId> offload_slots;
};

// Host memory of a micro-batch on its way to a GPU.
struct StagingBuffers {
  BufferId batch;
  BatchLayout layout;  // of `batch`
  BufferId inputs;
  BufferId state;
};

// What ranks exchange of the gradients of a bucket, where they are not reduced in place.
struct ReductionBuffers {
  // Elements of the bucket that needs most of each.
  BufferId sums;  // in ReduceFormatRow::sum
  // Formats with blocks, the parts of all ranks: as this rank sends and as it receives them.
  BufferId sent;
  BufferId sent_scales;
  BufferId received;
  BufferId received_scales;
};

struct StepBuffers {
  StoreBuffers store;
  TokenBuffers batch;
  std::vector<LayerBuffers> layers;
  std::vector<SiteBuffers> sites;  // in the order of forward
  BufferId delta;                  // what a sub-block adds to the residual stream, or all of it
  HeadBuffers head;
  GradientBuffers gradients;
  QuantBuffers quant;
  BufferId step_inputs;
  BufferId step_state;
  std::vector<StagingBuffers> staging;  // by slot; empty on the CPU
  ReductionBuffers reduction;
  BufferId workspace;  // scratch of the largest op

  // `weight` is one of the model's that a product reads.
  const SiteBuffers& Site(Slot weight, int layer) const;
};

// A placed plan and its handles.
struct TrainingPlan : MemoryPlan {
  StepBuffers ids;
};

}  // namespace hearth::spec
