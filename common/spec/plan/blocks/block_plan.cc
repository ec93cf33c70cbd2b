#include "common/spec/plan/blocks/block_plan.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/spec/plan/blocks/block_table.h"

namespace hearth::spec {
namespace {

std::vector<int64_t> LayersWith(const Block& block, const ModelShape& shape) {
  std::vector<int64_t> layers;
  for (int64_t l = 0; l < shape.layers; ++l) {
    if (block.of != nullptr && block.of(shape.Row(l))) {
      layers.push_back(l);
    }
  }
  return layers;
}

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

// One buffer for all layers.
void AddShared(const BlockScope& scope,
               const Block& block,
               const ActivationRow& row,
               const std::vector<int64_t>& layers,
               PlanBuilder& out) {
  const StepTimeline& time = scope.time;
  const int32_t first = row.backward_alone ? time.FfnBackward(time.layers - 1)
                        : row.input        ? time.Embedding()
                                           : time.MixerForward(0);
  const int32_t last = scope.options.training ? time.MixerBackward(0) : time.Head();
  const BufferId id = AddActivation(block, row, "shared.", {first, last}, out);
  for (const int64_t l : layers) {
    row.id(out.ids(), l) = id;
  }
}

void AddOfLayers(const BlockScope& scope,
                 const Block& block,
                 const ActivationRow& row,
                 const std::vector<int64_t>& layers,
                 PlanBuilder& out) {
  const StepTimeline& time = scope.time;
  for (const int64_t l : layers) {
    if (row.in_quantised_layers && !scope.options.precision.QuantisesLayer(l)) {
      continue;
    }
    // The embedding writes the first layer's input.
    const int32_t first = row.input && l == 0 ? time.Embedding() : time.Forward(block.unit, l);
    row.id(out.ids(), l) = AddActivation(block, row, absl::StrCat("layers.", l, "."),
                                         {first, time.Backward(block.unit, l)}, out);
  }
}

// Calls `visit(block, row, layers)` for each row of each block that a layer has.
template <typename Visit>
void ForEachActivation(const BlockScope& scope, Visit visit) {
  for (const Block* block : Blocks()) {
    const std::vector<int64_t> layers = LayersWith(*block, scope.shape);
    if (layers.empty()) {
      continue;
    }
    for (const ActivationRow& row : block->activations(scope)) {
      visit(*block, row, layers);
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
  ForEachActivation(
      scope, [&](const Block& block, const ActivationRow& row, const std::vector<int64_t>& layers) {
        if (!row.exists() || row.StandsIn(scope.options)) {
          return;
        }
        if (row.Shared(scope.options)) {
          AddShared(scope, block, row, layers, out);
        } else {
          AddOfLayers(scope, block, row, layers, out);
        }
      });
}

void AddWork(const BlockScope& scope, PlanBuilder& out) {
  for (const Block* block : Blocks()) {
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
  ForEachActivation(scope, [&](const Block& /*block*/, const ActivationRow& lies,
                               const std::vector<int64_t>& layers) {
    if (lies.StandsIn(scope.options) && &lies.stand_in(out.ids(), 0) == handle) {
      life.first = std::min(life.first, scope.time.FfnForward(layers.front()));
    }
  });
  return row.id(out.ids(), 0) = AddWorkRow(row, life, out);
}

void AddGradients(const BlockScope& scope, PlanBuilder& out) {
  const absl::Span<const Block* const> blocks = Blocks();
  for (size_t i = blocks.size(); i-- > 0;) {
    for (const WorkRow& row : blocks[i]->work(scope)) {
      if (row.exists() && row.gradient) {
        AddGradient(scope, row, out);
      }
    }
  }
}

void BindSites(const BlockScope& scope, StepBuffers& ids) {
  ForEachActivation(scope, [&](const Block& /*block*/, const ActivationRow& row,
                               const std::vector<int64_t>& layers) {
    for (const int64_t l : layers) {
      if (row.StandsIn(scope.options)) {
        row.id(ids, l) = row.stand_in(ids, l);
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
