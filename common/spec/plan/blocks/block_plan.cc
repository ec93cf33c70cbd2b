#include "common/spec/plan/blocks/block_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/spec/plan/blocks/block_table.h"
#include "common/spec/plan/offload.h"

namespace hearth::spec {
namespace {

BufferId AddActivation(const Block& block,
                       const ActivationRow& row,
                       std::string name,
                       Lifetime life,
                       MemoryTier tier,
                       PlanBuilder& out) {
  absl::StrAppend(&name, absl::string_view(block.place.data(), block.place.size()), ".",
                  absl::string_view(row.name.data(), row.name.size()));
  return row.bytes > 0
             ? out.Bytes(std::move(name), BufferClass::kActivations, row.bytes, life, tier)
             : out.Floats(std::move(name), BufferClass::kActivations, row.format, row.shape, life,
                          tier);
}

// One buffer for all these layers.
void AddShared(const BlockScope& scope,
               const ActivationRow& row,
               const std::vector<PlacedBlock>& places,
               PlanBuilder& out) {
  const StepTimeline& time = scope.time;
  // The part before a layer writes the input of its first block, and before the first layer that is
  // the embedding.
  const bool embedding = row.input && places.front().first;
  const int32_t first = row.backward_alone ? time.LayersBackward()
                        : embedding        ? time.Embedding()
                                           : time.LayersForward();
  const int32_t last = scope.options.training ? time.LayersBackwardEnd() : time.Head();
  const BufferId id =
      AddActivation(*places.front().block, row, "shared.", {first, last}, MemoryTier::kDevice, out);
  for (const PlacedBlock& placed : places) {
    row.id(out.ids(), placed.layer) = id;
  }
}

// From where a layer's forward pass writes it to where its backward pass reads it.
Lifetime LifeInLayer(const BlockScope& scope, const ActivationRow& row, const PlacedBlock& placed) {
  const StepTimeline& time = scope.time;
  // The embedding writes the first layer's input.
  const bool embedding = row.input && placed.first && placed.layer == 0;
  return {embedding ? time.Embedding() : time.Forward(placed.number), time.Backward(placed.number)};
}

std::string LayerName(const PlacedBlock& placed) {
  return absl::StrCat("layers.", placed.layer, ".");
}

void AddOfLayers(const BlockScope& scope,
                 const ActivationRow& row,
                 const std::vector<PlacedBlock>& places,
                 PlanBuilder& out) {
  for (const PlacedBlock& placed : places) {
    row.id(out.ids(), placed.layer) =
        AddActivation(*placed.block, row, LayerName(placed), LifeInLayer(scope, row, placed),
                      MemoryTier::kDevice, out);
  }
}

size_t KeptSlotOf(const PlacedBlock& placed) {
  return static_cast<size_t>(placed.layer) % kKeptSlots;
}

// Whether a later one of `places` has the slot of places[i].
bool TakenOver(const std::vector<PlacedBlock>& places, size_t i) {
  return std::any_of(
      places.begin() + static_cast<std::ptrdiff_t>(i) + 1, places.end(),
      [&](const PlacedBlock& later) { return KeptSlotOf(later) == KeptSlotOf(places[i]); });
}

void AddInSlots(const BlockScope& scope,
                const ActivationRow& row,
                const std::vector<PlacedBlock>& places,
                PlanBuilder& out) {
  std::array<BufferId, kKeptSlots> slots;
  for (size_t i = 0; i < places.size(); ++i) {
    const PlacedBlock& placed = places[i];
    const Lifetime life = LifeInLayer(scope, row, placed);
    BufferId& slot = slots[KeptSlotOf(placed)];
    if (!slot.exists()) {
      // The first layer of a slot is the last that goes backward.
      slot = AddActivation(*placed.block, row, absl::StrCat("slot.", KeptSlotOf(placed), "."), life,
                           MemoryTier::kDevice, out);
    }
    row.id(out.ids(), placed.layer) = slot;
    if (TakenOver(places, i)) {
      const BufferId host =
          AddActivation(*placed.block, row, LayerName(placed), life, MemoryTier::kPinnedHost, out);
      out.ids().layers[static_cast<size_t>(placed.layer)].away.push_back({slot, host});
    }
  }
}

// Where layers have a row by themselves, and where one buffer serves all.
struct RowPlaces {
  std::vector<PlacedBlock> own;
  std::vector<PlacedBlock> shared;
};

RowPlaces PlacesOfRow(const TrainingPlanOptions& o,
                      const ActivationRow& row,
                      const std::vector<PlacedBlock>& places) {
  RowPlaces out;
  if (!row.exists() || row.StandsIn(o)) {
    return out;
  }
  for (const PlacedBlock& placed : places) {
    // Recomputing a layer begins with the input of its first block, so that one is always kept.
    const bool kept = o.training && row.input && placed.first;
    if (row.Shared(o) && !kept) {
      out.shared.push_back(placed);
    } else if (!row.in_quantised_layers || o.precision.QuantisesLayer(placed.layer)) {
      out.own.push_back(placed);
    }
  }
  return out;
}

bool LayersAreAway(const TrainingPlanOptions& o) {
  return o.training && o.offload.Has(BufferClass::kActivations);
}

// Bytes of the row on a GPU.
int64_t RowBytes(const ActivationRow& row) {
  int64_t elements = 1;
  for (const int64_t extent : row.shape) {
    elements *= extent;
  }
  return row.bytes > 0 ? row.bytes : DTypeBytes(row.format, elements);
}

// Calls `visit(row, places)` for each row of each block of the layers that the model has.
template <typename Visit>
void ForEachActivation(const BlockScope& scope, Visit visit) {
  for (const Block* block : Blocks()) {
    const std::vector<PlacedBlock> places = PlacesOf(*block, scope.shape);
    if (places.empty()) {
      continue;
    }
    for (const ActivationRow& row : block->activations(scope)) {
      visit(row, places);
    }
  }
}

BufferId AddWorkRow(const WorkRow& row, Lifetime life, PlanBuilder& out) {
  std::string name(row.name);
  return row.bytes > 0
             ? out.Bytes(std::move(name), BufferClass::kWorkspace, row.bytes, life)
             : out.Floats(std::move(name), BufferClass::kWorkspace, row.format, row.shape, life);
}

}  // namespace

void AddActivations(const BlockScope& scope, PlanBuilder& out) {
  const TrainingPlanOptions& o = scope.options;
  ForEachActivation(scope, [&](const ActivationRow& row, const std::vector<PlacedBlock>& places) {
    const RowPlaces of = PlacesOfRow(o, row, places);
    if (!of.shared.empty()) {
      AddShared(scope, row, of.shared, out);
    }
    (LayersAreAway(o) ? AddInSlots : AddOfLayers)(scope, row, of.own, out);
    for (const PlacedBlock& placed : places) {
      if (row.input && placed.first) {
        out.ids().layers[static_cast<size_t>(placed.layer)].input = row.id(out.ids(), placed.layer);
      }
    }
  });
}

int64_t AwayBytes(const BlockScope& scope) {
  int64_t bytes = 0;
  if (!LayersAreAway(scope.options)) {
    return bytes;
  }
  ForEachActivation(scope, [&](const ActivationRow& row, const std::vector<PlacedBlock>& places) {
    const std::vector<PlacedBlock> own = PlacesOfRow(scope.options, row, places).own;
    for (size_t i = 0; i < own.size(); ++i) {
      bytes += TakenOver(own, i) ? RowBytes(row) : 0;
    }
  });
  return bytes;
}

void AddWork(const BlockScope& scope, PlanBuilder& out) {
  for (const Block* block : Blocks()) {
    if (PlacesOf(*block, scope.shape).empty()) {
      continue;
    }
    for (const WorkRow& row : block->work(scope)) {
      if (row.exists() && !row.gradient) {
        row.id(out.ids(), 0) = AddWorkRow(row, row.life, out);
      }
    }
  }
}

BufferId AddGradient(const BlockScope& scope, const WorkRow& row, PlanBuilder& out) {
  Lifetime life = row.life;
  const BufferId* const handle = &row.id(out.ids(), 0);
  ForEachActivation(scope, [&](const ActivationRow& lies, const std::vector<PlacedBlock>& places) {
    // An activation that lies in this buffer is written in the forward pass: it has to exist by
    // then.
    if (lies.StandsIn(scope.options) && &lies.stand_in(out.ids(), 0) == handle) {
      life.first = std::min(life.first, scope.time.Forward(places.front().number));
    }
  });
  return row.id(out.ids(), 0) = AddWorkRow(row, life, out);
}

void AddGradients(const BlockScope& scope, PlanBuilder& out) {
  const absl::Span<const Block* const> blocks = Blocks();
  for (size_t i = blocks.size(); i-- > 0;) {
    const std::vector<PlacedBlock> places = PlacesOf(*blocks[i], scope.shape);
    if (places.empty()) {
      continue;
    }
    for (WorkRow& row : blocks[i]->work(scope)) {
      if (row.exists() && row.gradient) {
        row.life = {scope.time.Backward(places.back().number),
                    scope.time.Backward(places.front().number)};
        AddGradient(scope, row, out);
      }
    }
  }
}

void BindSites(const BlockScope& scope, StepBuffers& ids) {
  ForEachActivation(scope, [&](const ActivationRow& row, const std::vector<PlacedBlock>& places) {
    for (const PlacedBlock& placed : places) {
      if (row.StandsIn(scope.options)) {
        row.id(ids, placed.layer) = row.stand_in(ids, placed.layer);
      }
    }
  });
  for (const PlacedBlock& placed : BlocksOf(scope.shape)) {
    for (const GemmSites& sites : placed.block->sites(scope.shape)) {
      SiteBuffers& bound = ids.sites.emplace_back();
      bound.weight = sites.weight;
      bound.layer = placed.layer;
      bound.x = sites.x(ids, placed.layer);
      bound.x_columns = sites.x_columns(ids, placed.layer);
      bound.dy = sites.dy == nullptr ? BufferId() : sites.dy(ids, placed.layer);
      bound.backward_makes_columns =
          sites.backward_makes_columns != nullptr && sites.backward_makes_columns(scope);
      bound.dy_waits = sites.dy_waits != nullptr && sites.dy_waits(scope);
      bound.x_rows_apart = sites.x_rows_apart != nullptr && sites.x_rows_apart(scope);
    }
  }
}

}  // namespace hearth::spec
