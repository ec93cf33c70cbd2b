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

// Units of weights in blocks; none where the table has no such weights.
WeightUnits PlanStoredUnits(const TrainingPlanOptions& options) {
  WeightUnits plan;
  const std::vector<Parameter>& table = *options.table;
  if (std::none_of(table.begin(), table.end(), [](const Parameter& p) { return p.stored(); })) {
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
    unit.slot = 1;
    slot.elements = std::max(slot.elements, unit.elements);
  }
  return plan;
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
  const std::vector<int64_t> offsets = TensorOffsets(*options.table, options.shards);
  const std::vector<GradientBucket> buckets = PlanBuckets(options);
  const StepTimeline time = TimelineOf(options.shape);
  plan.of_block = UnitOfBlocks(options.shape, *options.table);
  plan.units.resize(
      static_cast<size_t>(*std::max_element(plan.of_block.begin(), plan.of_block.end())) + 1);
  plan.slots.resize(1 + kLayerSlots);
  for (size_t b = 0; b < buckets.size(); ++b) {
    // The first tensor of a bucket speaks for all: GradientBuckets closes it where its unit ends.
    const auto first = std::find(offsets.begin(), offsets.end() - 1, buckets[b].begin);
    HEARTH_CHECK(first != offsets.end() - 1, "a bucket begins with a tensor");
    const Parameter& parameter = (*options.table)[static_cast<size_t>(first - offsets.begin())];
    WeightUnit& unit =
        plan.units[static_cast<size_t>(plan.of_block[static_cast<size_t>(parameter.block)])];
    unit.buckets.push_back(b);
    unit.offsets.push_back(unit.elements);
    unit.elements += buckets[b].elements();
  }
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const bool layer = u > 0 && u <= static_cast<size_t>(options.shape.layers);
    plan.units[u].slot = layer ? 1 + static_cast<int>((u - 1) % kLayerSlots) : kOuterSlot;
    WeightSlot& slot = plan.slots[static_cast<size_t>(plan.units[u].slot)];
    slot.elements = std::max(slot.elements, plan.units[u].elements);
    // The first layers arrive beside the embedding.
    slot.ends = layer ? time.LayersBackwardEnd() : time.Head();
  }
  std::erase_if(plan.slots, [](const WeightSlot& slot) { return slot.elements == 0; });
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

GatheredElements GatheredInPass(const WeightUnits& units) {
  GatheredElements gathered;
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
      (i < forward ? gathered.forward : gathered.backward) += unit.elements;
      holder = visits[i];
    }
  }
  return gathered;
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
