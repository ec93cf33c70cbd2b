// With divided weights (ShardLevel) a rank keeps its part of every gradient bucket's weights. What
// a pass reads is brought together in slots, one unit after the other: the embedding, each layer,
// the head. A tied embedding and the head are one unit.
//
//   forward   slot 0  | embedding | ........................... head |
//             slot 1  |  layer 0 arrives | layer 0 | layer 2 arrives | layer 2 ...
//             slot 2  |                    layer 1 arrives | layer 1 | layer 3 arrives ...
//
// Backward visits the layers the other way round. As each unit always has the same slot, products
// are bound to it once, and neighbours are never in one: a unit arrives beside the one before it.
//
// Weights in blocks (weights.store) that every rank has whole come the same way: a layer is decoded
// into a slot before a pass reads it. That takes no other stream, so it is done when the unit
// before has been read, and one slot is enough for all layers:
//
//   forward   slot 0  (nothing: the embedding and the head are not in blocks)
//             slot 1  | layer 0 is decoded, layer 0 | layer 1 is decoded, layer 1 | ...
//
// Divided ones do both. A layer arrives in a slot where no pass reads it: its blocks, and next to
// them the rest of it in the recipe's format. It is unpacked from there into the one slot of all
// layers, and while it computes the next one arrives:
//
//   forward   slot 0  | embedding | .................................. head |
//             slot 1  |           | 0 is unpacked, layer 0 | 1 is unpacked, layer 1 | ...
//             slot 2  | layer 0 arrives | layer 1 arrives  | layer 2 arrives ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/spec/plan/gradient_buckets.h"
#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

struct WeightUnit {
  // Its weights: numbers of buckets, and where each begins in the slot, in elements.
  std::vector<size_t> buckets;
  // With whole weights in blocks, in place of buckets: those parameters, by number in the table.
  std::vector<int> parameters;
  std::vector<int64_t> offsets;
  int64_t elements = 0;
  int slot = 0;
  // Divided weights: the slot in which they arrive, and where each bucket does: in elements, or
  // those in blocks in bytes. It is `slot` where passes read them as they arrive.
  int arrival = 0;
  std::vector<int64_t> arrivals;
  int64_t plain = 0;        // elements that arrive in the recipe's format
  int64_t block_bytes = 0;  // the others, as blocks

  bool unpacked() const { return arrival != slot; }
};

struct WeightSlot {
  int64_t elements = 0;     // those of the largest of its units
  int64_t block_bytes = 0;  // the same
  int32_t begins = 0;       // moments of the step (StepTimeline) between which it holds any
  int32_t ends = 0;
};

struct WeightUnits {
  std::vector<WeightUnit> units;  // in the order of forward
  std::vector<int> of_block;      // by the number of a block
  std::vector<WeightSlot> slots;
  // A unit arrives beside the one before it; false: once that one has been read.
  bool ahead = true;

  // Weights are in place all the time.
  bool empty() const { return units.empty(); }
  // A rank has only its part of them: each unit is made of buckets.
  bool divided() const { return !empty() && !units.front().buckets.empty(); }
  // In which order a pass needs units: forward, and if it goes back, through the layers again.
  std::vector<int> Visits(bool backward) const;
};

// By the number of a block, for any model. Every bucket of divided weights lies in one unit.
std::vector<int> UnitOfBlocks(const ModelShape& shape, const std::vector<Parameter>& table);

// None where the plan neither divides weights nor keeps them in blocks.
WeightUnits PlanWeightUnits(const TrainingPlanOptions& options);

// What a pass brings together, (W - 1) / W of which comes from other ranks: `what` of the units
// that it visits and that are not in their slot yet.
struct Gathered {
  int64_t forward = 0;
  int64_t backward = 0;
};
Gathered GatheredInPass(const WeightUnits& units,
                        int64_t WeightUnit::*what = &WeightUnit::elements);

// The same of divided weights in bytes; `element`: those of one in the recipe's format.
Gathered GatheredBytes(const WeightUnits& units, double element);

// QuantisedOffsets for weights that are quantised when their unit arrives: places for each slot.
std::vector<int64_t> QuantisedUnitOffsets(const std::vector<Parameter>& table,
                                          const std::vector<int>& indices,
                                          const PrecisionPlan& precision,
                                          const WeightUnits& units,
                                          bool transposed);

}  // namespace hearth::spec
