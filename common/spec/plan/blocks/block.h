// A block of a model describes itself once: which tensors it keeps for backward, in which shape,
// format and for how long, and which gradients it works with. Each has a file beside this one; a
// layer's row (ModelShape::Row) says which of them a layer is made of.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/spec/plan/plan_builder.h"
#include "common/spec/plan/step_buffers.h"
#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

// What descriptions read.
struct BlockScope {
  explicit BlockScope(const TrainingPlanOptions& plan_options);

  const TrainingPlanOptions& options;
  const ModelShape& shape;
  StepTimeline time;
  int64_t tokens;    // of a micro-batch
  DType activation;  // of the residual stream and what is computed from it
  bool quantised;    // any layer is, in training
  bool four_bits;    // and wgrad reads four bits
  bool narrow;       // and passes keep the input of the activation function in 8 bits
  // The first level at which plain operands are made again: in a job that quantises there is one
  // for all layers at each.
  Recompute plain_operand;

  // Bytes of [tokens, width] as a quantised wgrad reads it; 0: nothing is quantised.
  int64_t ColumnBytes(int64_t width) const;
};

// A tensor that backward reads. It has one buffer for each layer, or from `shared_from` on, where
// it is computed again, one for all.
template <typename Ids>
struct ActivationRow {
  BufferId Ids::*id = nullptr;
  std::string_view name;
  std::vector<int64_t> shape = {};  // of a floating tensor; empty with bytes 0: the model has none
  DType format = DType::kBF16;
  int64_t bytes = 0;  // of quantised values, which have no shape
  Recompute shared_from = Recompute::kBlock;
  bool in_quantised_layers = false;  // in those alone
  bool backward_alone = false;       // only backward uses it
  // The layer's input: the part before writes it, and every level keeps it.
  bool input = false;
  // Where it is shared, it lies in this gradient's buffer, which the GEMM after wgrad, its last
  // reader, writes.
  BufferId GradientBuffers::*stand_in = nullptr;

  bool exists() const { return !shape.empty() || bytes > 0; }
  bool Shared(const TrainingPlanOptions& o) const {
    return !o.training || (!input && o.recompute >= shared_from);
  }
  bool StandsIn(const TrainingPlanOptions& o) const {
    return stand_in != nullptr && o.training && Shared(o) && exists();
  }
};

template <typename Ids>
using ActivationRows = std::vector<ActivationRow<Ids>>;

// A block as part of a layer.
template <typename Ids>
struct LayerBlock {
  std::string_view place;  // in buffers' names: "mixer" or "ffn"
  Ids LayerBuffers::*ids;
  bool (*of)(const LayerRow& row);  // whether a layer has it
  int32_t (StepTimeline::*forward)(int64_t layer) const;
  int32_t (StepTimeline::*backward)(int64_t layer) const;
};

// Plans the rows of every layer that has the block, as "layers.<l>.<place>.<name>" or
// "shared.<place>.<name>", and fills its handles.
template <typename Ids>
void AddActivations(const BlockScope& scope,
                    const LayerBlock<Ids>& block,
                    const ActivationRows<Ids>& rows,
                    PlanBuilder& out) {
  const StepTimeline& time = scope.time;
  const auto add = [&](const ActivationRow<Ids>& row, std::string_view owner, Lifetime life) {
    std::string name(owner);
    name.append(block.place).append(".").append(row.name);
    return row.bytes > 0 ? out.Bytes(std::move(name), BufferClass::kActivations, row.bytes, life)
                         : out.Floats(std::move(name), BufferClass::kActivations, row.format,
                                      row.shape, life);
  };
  for (const ActivationRow<Ids>& row : rows) {
    if (!row.exists() || row.StandsIn(scope.options)) {
      continue;
    }
    if (row.Shared(scope.options)) {
      const int32_t first = row.backward_alone ? time.FfnBackward(time.layers - 1)
                            : row.input        ? time.Embedding()
                                               : time.MixerForward(0);
      const BufferId id = add(
          row, "shared.", {first, scope.options.training ? time.MixerBackward(0) : time.Head()});
      for (LayerBuffers& layer : out.ids().layers) {
        (layer.*block.ids).*row.id = id;
      }
      continue;
    }
    for (int64_t l = 0; l < time.layers; ++l) {
      if (!block.of(scope.shape.Row(l)) ||
          (row.in_quantised_layers && !scope.options.precision.QuantisesLayer(l))) {
        continue;
      }
      // The embedding writes the first layer's input.
      const int32_t first = row.input && l == 0 ? time.Embedding() : (time.*block.forward)(l);
      (out.ids().layers[static_cast<size_t>(l)].*block.ids).*row.id =
          add(row, absl::StrCat("layers.", l, "."), {first, (time.*block.backward)(l)});
    }
  }
}

// Gradients that rows lie in: once those are planned.
template <typename Ids>
void BindStandIns(const BlockScope& scope,
                  const ActivationRows<Ids>& rows,
                  Ids LayerBuffers::*ids,
                  StepBuffers& buffers) {
  for (const ActivationRow<Ids>& row : rows) {
    for (LayerBuffers& layer : buffers.layers) {
      if (row.StandsIn(scope.options)) {
        (layer.*ids).*row.id = buffers.gradients.*row.stand_in;
      }
    }
  }
}

// When the gradient's buffer is first used: in forward where a row lies in it.
template <typename Ids>
int32_t FirstUse(const BlockScope& scope,
                 const ActivationRows<Ids>& rows,
                 BufferId GradientBuffers::*gradient,
                 int32_t moment) {
  for (const ActivationRow<Ids>& row : rows) {
    if (row.stand_in == gradient && row.StandsIn(scope.options)) {
      return scope.time.FfnForward(0);
    }
  }
  return moment;
}

}  // namespace hearth::spec
