#include "common/spec/plan/weight_units.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/spec/plan/blocks/block_table.h"

namespace hearth::spec {
namespace {

// One for the embedding and the head, which no pass needs at one time unless they are one unit, and
// two that the layers use in turn.
constexpr int kOuterSlot = 0;
constexpr int kLayerSlots = 2;

int64_t Aligned(int64_t elements) {
  return (elements + kTensorAlignElements - 1) / kTensorAlignElements * kTensorAlignElements;
}

// Makes room in a slot, until the moment `ends`.
void Fit(int64_t elements, int64_t block_bytes, int32_t ends, WeightSlot& slot) {
  slot.elements = std::max(slot.elements, elements);
  slot.block_bytes = std::max(slot.block_bytes, block_bytes);
  slot.ends = std::max(slot.ends, ends);
}

// Units of whole weights in blocks; none where the table has no such weights.
WeightUnits PlanStoredUnits(const TrainingPlanOptions& options) {
  WeightUnits plan;
  const std::vector<Parameter>& table = *options.table;
  if (StoredCodec(table) == formats::WeightCodec::kNone) {
    return plan;
  }
  const StepTimeline time = TimelineOf(options.shape);
  plan.ahead = false;
  plan.of_block = UnitOfBlocks(options.shape, table);
  plan.units.resize(
      static_cast<size_t>(*std::max_element(plan.of_block.begin(), plan.of_block.end())) + 1);
  plan.slots.resize(2);
  WeightSlot& slot = plan.slots[1];
  slot.begins = time.LayersForward();
  slot.ends = time.LayersBackwardEnd();
  for (size_t i = 0; i < table.size(); ++i) {
    if (!table[i].stored()) {
      continue;
    }
    WeightUnit& unit =
        plan.units[static_cast<size_t>(plan.of_block[static_cast<size_t>(table[i].block)])];
    unit.parameters.push_back(static_cast<int>(i));
    unit.offsets.push_back(unit.elements);
    unit.elements += Aligned(table[i].elements());
    unit.slot = unit.arrival = 1;
    slot.elements = std::max(slot.elements, unit.elements);
  }
  return plan;
}

// What lies where of one bucket of a unit.
void AddBucket(const std::vector<Parameter>& table,
               const GradientBucket& bucket,
               size_t number,
               WeightUnit& unit) {
  unit.buckets.push_back(number);
  unit.offsets.push_back(unit.elements);
  unit.elements += bucket.elements();
  int64_t& arrives = bucket.stored ? unit.block_bytes : unit.plain;
  unit.arrivals.push_back(arrives);
  arrives += bucket.stored ? StoredRow(table).Bytes(bucket.elements()) : bucket.elements();
}

}  // namespace

std::vector<int> UnitOfBlocks(const ModelShape& shape, const std::vector<Parameter>& table) {
  const bool tied = table[static_cast<size_t>(FindHead(table))].block == 0;
  std::vector<int> units;
  for (const PlacedBlock& placed : BlocksOf(shape)) {
    const bool head = placed.layer < 0 && placed.number > 0;
    const int last = tied ? 0 : static_cast<int>(shape.layers) + 1;
    units.push_back(head ? last : placed.layer + 1);
  }
  return units;
}

WeightUnits PlanWeightUnits(const TrainingPlanOptions& options) {
  WeightUnits plan;
  if (!options.divide_weights) {
    return PlanStoredUnits(options);
  }
  const std::vector<Parameter>& table = *options.table;
  const std::vector<int64_t> offsets = TensorOffsets(table, options.shards);
  const std::vector<GradientBucket> buckets = PlanBuckets(options);
  const StepTimeline time = TimelineOf(options.shape);
  plan.of_block = UnitOfBlocks(options.shape, table);
  plan.units.resize(
      static_cast<size_t>(*std::max_element(plan.of_block.begin(), plan.of_block.end())) + 1);
  for (size_t b = 0; b < buckets.size(); ++b) {
    // The first tensor of a bucket speaks for all: GradientBuckets closes it where its unit ends.
    const auto first = std::find(offsets.begin(), offsets.end() - 1, buckets[b].begin);
    HEARTH_CHECK(first != offsets.end() - 1, "a bucket begins with a tensor");
    const Parameter& parameter = table[static_cast<size_t>(first - offsets.begin())];
    const int unit = plan.of_block[static_cast<size_t>(parameter.block)];
    AddBucket(table, buckets[b], b, plan.units[static_cast<size_t>(unit)]);
  }
  // Layers that are unpacked share a slot. Behind it is the one in which they arrive.
  const bool stored = StoredCodec(table) != formats::WeightCodec::kNone;
  const int layer_slots = stored ? 1 : kLayerSlots;
  const int slots = 1 + layer_slots + (stored ? 1 : 0);
  plan.slots.resize(static_cast<size_t>(slots));
  for (size_t u = 0; u < plan.units.size(); ++u) {
    WeightUnit& unit = plan.units[u];
    const bool layer = u > 0 && u <= static_cast<size_t>(options.shape.layers);
    unit.slot =
        layer ? 1 + static_cast<int>((u - 1) % static_cast<size_t>(layer_slots)) : kOuterSlot;
    unit.arrival = layer && stored ? 1 + layer_slots : unit.slot;
    // The first layers arrive beside the embedding.
    const int32_t ends = layer ? time.LayersBackwardEnd() : time.Head();
    Fit(unit.elements, 0, ends, plan.slots[static_cast<size_t>(unit.slot)]);
    if (unit.unpacked()) {
      Fit(unit.plain, unit.block_bytes, ends, plan.slots[static_cast<size_t>(unit.arrival)]);
    }
  }
  std::erase_if(plan.slots,
                [](const WeightSlot& slot) { return slot.elements == 0 && slot.block_bytes == 0; });
  return plan;
}

std::vector<int> WeightUnits::Visits(bool backward) const {
  std::vector<int> visits;
  for (const int unit : of_block) {
    if (visits.empty() || visits.back() != unit) {
      visits.push_back(unit);
    }
  }
  // From the head back to the first layer: the embedding's gradient needs no weights.
  for (size_t i = visits.size() - 1; backward && i-- > 1;) {
    visits.push_back(visits[i]);
  }
  return visits;
}

Gathered GatheredInPass(const WeightUnits& units, int64_t WeightUnit::*what) {
  Gathered gathered;
  if (units.empty()) {
    return gathered;
  }
  const size_t forward = units.Visits(false).size();
  const std::vector<int> visits = units.Visits(true);
  std::vector<int> holders(units.slots.size(), -1);
  for (size_t i = 0; i < visits.size(); ++i) {
    const WeightUnit& unit = units.units[static_cast<size_t>(visits[i])];
    int& holder = holders[static_cast<size_t>(unit.slot)];
    if (holder != visits[i]) {
      (i < forward ? gathered.forward : gathered.backward) += unit.*what;
      holder = visits[i];
    }
  }
  return gathered;
}

Gathered GatheredBytes(const WeightUnits& units, double element) {
  const Gathered plain = GatheredInPass(units, &WeightUnit::plain);
  const Gathered blocks = GatheredInPass(units, &WeightUnit::block_bytes);
  const auto bytes = [element](int64_t elements, int64_t block_bytes) {
    return static_cast<int64_t>(element * static_cast<double>(elements)) + block_bytes;
  };
  return {bytes(plain.forward, blocks.forward), bytes(plain.backward, blocks.backward)};
}

std::vector<int64_t> QuantisedUnitOffsets(const std::vector<Parameter>& table,
                                          const std::vector<int>& indices,
                                          const PrecisionPlan& precision,
                                          const WeightUnits& units,
                                          bool transposed) {
  if (units.empty()) {
    return QuantisedOffsets(table, indices, precision, transposed);
  }
  std::vector<std::vector<int>> of_unit(units.units.size());
  for (const int i : indices) {
    const int block = table[static_cast<size_t>(i)].block;
    of_unit[static_cast<size_t>(units.of_block[static_cast<size_t>(block)])].push_back(i);
  }
  std::vector<std::vector<int64_t>> within;
  std::vector<int64_t> bytes(units.slots.size(), 0);
  for (size_t u = 0; u < of_unit.size(); ++u) {
    within.push_back(QuantisedOffsets(table, of_unit[u], precision, transposed));
    int64_t& slot = bytes[static_cast<size_t>(units.units[u].slot)];
    slot = std::max(slot, within.back().back());
  }
  std::vector<int64_t> begins(bytes.size() + 1, 0);
  for (size_t s = 0; s < bytes.size(); ++s) {
    begins[s + 1] = begins[s] + bytes[s];
  }
  std::vector<int64_t> offsets;
  for (const int i : indices) {
    const int block = table[static_cast<size_t>(i)].block;
    const auto u = static_cast<size_t>(units.of_block[static_cast<size_t>(block)]);
    const auto at = std::find(of_unit[u].begin(), of_unit[u].end(), i) - of_unit[u].begin();
    offsets.push_back(begins[static_cast<size_t>(units.units[u].slot)] +
                      within[u][static_cast<size_t>(at)]);
  }
  offsets.push_back(begins.back());
  return offsets;
}

}  // namespace hearth::spec
