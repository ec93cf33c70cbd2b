#include "common/spec/plan/blocks/block_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/spec/plan/blocks/block_table.h"

namespace hearth::spec {
namespace {

BufferId AddActivation(const Block& block,
                       const ActivationRow& row,
                       std::string name,
                       Lifetime life,
                       PlanBuilder& out) {
  absl::StrAppend(&name, absl::string_view(block.place.data(), block.place.size()), ".",
                  absl::string_view(row.name.data(), row.name.size()));
  return row.bytes > 0
             ? out.Bytes(std::move(name), BufferClass::kActivations, row.bytes, life)
             : out.Floats(std::move(name), BufferClass::kActivations, row.format, row.shape, life);
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
  const BufferId id = AddActivation(*places.front().block, row, "shared.", {first, last}, out);
  for (const PlacedBlock& placed : places) {
    row.id(out.ids(), placed.layer) = id;
  }
}

void AddOfLayers(const BlockScope& scope,
                 const ActivationRow& row,
                 const std::vector<PlacedBlock>& places,
                 PlanBuilder& out) {
  const StepTimeline& time = scope.time;
  for (const PlacedBlock& placed : places) {
    if (row.in_quantised_layers && !scope.options.precision.QuantisesLayer(placed.layer)) {
      continue;
    }
    // The embedding writes the first layer's input.
    const bool embedding = row.input && placed.first && placed.layer == 0;
    const int32_t first = embedding ? time.Embedding() : time.Forward(placed.number);
    row.id(out.ids(), placed.layer) =
        AddActivation(*placed.block, row, absl::StrCat("layers.", placed.layer, "."),
                      {first, time.Backward(placed.number)}, out);
  }
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
    if (!row.exists() || row.StandsIn(o)) {
      return;
    }
    std::vector<PlacedBlock> shared;
    std::vector<PlacedBlock> own;
    for (const PlacedBlock& placed : places) {
      // Recomputing a layer begins with the input of its first block, so that one is always kept.
      const bool kept = o.training && row.input && placed.first;
      (row.Shared(o) && !kept ? shared : own).push_back(placed);
    }
    if (!shared.empty()) {
      AddShared(scope, row, shared, out);
    }
    AddOfLayers(scope, row, own, out);
    for (const PlacedBlock& placed : places) {
      if (row.input && placed.first) {
        out.ids().layers[static_cast<size_t>(placed.layer)].input = row.id(out.ids(), placed.layer);
      }
    }
  });
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
    }
  }
}

}  // namespace hearth::spec
