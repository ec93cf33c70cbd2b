// How the flat parameter-shaped buffers (weights, gradients, masters, optimizer state) are cut for
// communication between data-parallel ranks.
//
// Backward completes the gradients from the end of the table to its start. A unit is what completes
// at one moment (StepTimeline): the gradients of one block. A bucket is a run of whole units that
// is reduced as one. With a divided optimizer (ShardLevel) rank r of W owns the r-th of W equal
// parts of every bucket: it alone holds their masters and optimizer state and updates them. With
// divided gradients it also alone holds their sums, and no rank has room for all gradients: a
// bucket's are made in a slot, summed over the ranks, and the slot is free for another bucket:
//
//   slot 0  | bucket 0 made, reduced | bucket 2 made, ...
//   slot 1  |          bucket 1 made, reduced | bucket 3 made, ...
//
// With fused updates (optimizer.fused) buckets are made in slots too. Each is applied to the
// weights while it is in its slot, so nothing keeps the sums. With coded gradients
// (gradients.store) a bucket is coded from its slot into a narrow format, and the update decodes it
// into the slot again. A rank without peers has one slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/spec/model/parameter.h"
#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

// Elements [begin, end) of the flat buffers.
struct GradientBucket {
  int64_t begin = 0;
  int64_t end = 0;
  int32_t ready = 0;           // moment of the step after which all of it is complete
  DType format = DType::kF32;  // of its gradients
  int32_t begins = 0;          // moment from which on backward writes into it
  int slot = -1;               // TrainingPlanOptions::in_slots: where they are made
  bool stored = false;         // its weights are in blocks; else none of them is
  int64_t elements() const { return end - begin; }
};

// In the order in which they become ready: in each of GradientGroups from its end to its start.
// Gaps included they cover the buffers without overlap. A bucket is closed when it holds at least
// `bucket_elements`, and before the embeddings, which are ready last; `bucket_elements` 0: one
// bucket for each group. `offsets` as TensorOffsets gives them for as many shards; with sharding
// every bucket is a multiple of shards * kTensorAlignElements. `unit_of_block`: a bucket is closed
// also where the next tensor is of another unit (UnitOfBlocks); empty: it may span them.
std::vector<GradientBucket> GradientBuckets(const std::vector<Parameter>& table,
                                            const std::vector<int64_t>& offsets,
                                            const StepTimeline& time,
                                            int64_t bucket_elements,
                                            const std::vector<int>& unit_of_block = {});

// Gives each bucket a slot. A used slot is taken again only while at least `wanted_free` slots are
// free. With two, the bucket that had the slot before may still be in its reduction. Where weights
// are in blocks, backward makes two buckets at one time, that of the blocks and the small one of
// the rest of the layer. The small ones have slots of their own.
void AssignSlots(std::vector<GradientBucket>& buckets, size_t wanted_free = 2);

// A buffer in which buckets are made one after the other.
struct GradientSlot {
  DType format = DType::kF32;
  int64_t elements = 0;  // of the largest of its buckets
  int32_t begins = 0;    // of the first of them
};
// By number; none where gradients are whole.
std::vector<GradientSlot> SlotsOf(const std::vector<GradientBucket>& buckets);

// The buckets of a run, for the shards and bucket size of its options. They have slots if the run
// makes gradients in slots; each stays within one unit if the run divides weights.
std::vector<GradientBucket> PlanBuckets(const TrainingPlanOptions& options);

// Part of one tensor that this rank owns. Without sharding: one piece a tensor, the whole of it.
struct ShardPiece {
  int parameter = 0;          // index in the table
  int64_t first_element = 0;  // in the tensor; a multiple of kTensorAlignElements
  int64_t elements = 0;       // > 0; padding rows of the tensor included
  int64_t offset = 0;         // in the full buffers (weights, gradients)
  int64_t local_offset = 0;   // in this rank's buffers (masters, optimizer state)
};

// In the order of the table. Rank `rank`'s own buffers have offsets.back() / shards elements; a
// bucket's part lies at begin / shards in them.
std::vector<ShardPiece> ShardPieces(const std::vector<Parameter>& table,
                                    const std::vector<int64_t>& offsets,
                                    const std::vector<GradientBucket>& buckets,
                                    int rank,
                                    int shards);

// Masters of one format on one rank.
struct MasterBuffer {
  DType format = DType::kF32;
  // By piece; -1: its master has another format, or is the weight itself.
  std::vector<int64_t> offsets;
  int64_t elements = 0;
};

// In the order in which the table begins to use their formats. `owned` as below; masters that all
// parameters have in one format lie as the rank's own buffers do.
std::vector<MasterBuffer> PlaceMasters(const std::vector<Parameter>& table,
                                       const std::vector<ShardPiece>& pieces,
                                       int64_t owned);

// One state on one rank: a buffer with this state for all pieces that have it, in one format.
struct StateBuffer {
  ParameterState state;
  // By piece, in the state's own elements; -1: its parameter has no such state.
  std::vector<int64_t> offsets;
  int64_t elements = 0;  // likewise
};

// In the order in which the table begins to use them. `owned`: elements of the rank's own
// parameter-shaped buffers; a state that all parameters have lies as they do.
std::vector<StateBuffer> PlaceStates(const std::vector<Parameter>& table,
                                     const std::vector<ShardPiece>& pieces,
                                     int64_t owned);

// Those buffers without offsets, the same on every rank: with the elements that the largest needs.
std::vector<MasterBuffer> LargestMasters(const TrainingPlanOptions& options);
std::vector<StateBuffer> LargestStates(const TrainingPlanOptions& options);

}  // namespace hearth::spec
