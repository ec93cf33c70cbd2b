#include "common/spec/plan/blocks/block.h"

#include <cmath>
#include <utility>

#include "common/spec/recipe/precision.h"

namespace hearth::spec {

WeightRow NormWeight(Slot slot, std::string_view name, HfModule module, int64_t width, Norm norm) {
  return {.slot = slot,
          .name = name,
          .kind = WeightKind::kNorm,
          .group = ParameterGroup::kNorm,
          .parts = {{name, module, width}},
          .bias = norm == Norm::kLayerNorm};
}

WeightRow LinearWeight(
    Slot slot, std::string_view name, std::vector<WeightPart> parts, int64_t in, bool bias) {
  return {.slot = slot,
          .name = name,
          .parts = std::move(parts),
          .cols = in,
          .bias = bias,
          .conv1d = true};
}

double ResidualScale(const ModelShape& shape) {
  return 1.0 / std::sqrt(2.0 * static_cast<double>(shape.layers));
}

PassRow NormPass(const BlockScope& b) {
  const auto hidden = static_cast<double>(b.shape.hidden);
  const double w = b.ActivationBytes();
  // Where layers are quantised, the products' operands are written too: rows and columns.
  const double operands = b.quantised ? 2 * b.OperandBytes() : 0;
  return {.name = "norm",
          .forward_bytes = hidden * (b.quantised ? 3 * w + operands : 4 * w),
          .backward_bytes = hidden * (4 * w + operands),
          .again_from = Recompute::kNormAct};
}

PassRow BiasPass(const BlockScope& b, int64_t width) {
  return {.name = "gradients of biases",
          .backward_bytes = static_cast<double>(width) * b.ActivationBytes()};
}

std::vector<ActivationRow> NormedRows(const BlockScope& b,
                                      const std::function<Handle(BufferId NormedBuffers::*)>& of,
                                      Handle norm_stand_in) {
  const int64_t n = b.tokens;
  const int64_t hidden = b.shape.hidden;
  return {
      {.id = of(&NormedBuffers::input),
       .name = "input",
       .shape = {n, hidden},
       .format = b.activation,
       .input = true},
      {.id = of(&NormedBuffers::norm),
       .name = "norm",
       .shape = {n, hidden},
       .format = b.activation,
       .shared_from = b.plain_operand,
       .stand_in = std::move(norm_stand_in)},
      {.id = of(&NormedBuffers::norm_columns),
       .name = "norm_columns",
       .bytes = b.ColumnBytes(hidden),
       .shared_from = b.columns_again ? Recompute::kNone : Recompute::kNormAct,
       .in_quantised_layers = true},
      {.id = of(&NormedBuffers::norm_stats),
       .name = "norm_stats",
       .shape = {2, n},
       .format = DType::kF32,
       .shared_from = Recompute::kNormAct},
  };
}

GemmSites NormedSites(Slot weight,
                      const std::function<Handle(BufferId NormedBuffers::*)>& of,
                      Handle dy,
                      Recompute again_from) {
  return {.weight = weight,
          .x = of(&NormedBuffers::norm),
          .x_columns = of(&NormedBuffers::norm_columns),
          .dy = std::move(dy),
          .again_from = again_from};
}

ActivationRow ColumnsRow(const BlockScope& b,
                         Handle id,
                         std::string_view name,
                         int64_t width,
                         bool again,
                         Recompute again_from) {
  return {.id = std::move(id),
          .name = name,
          .bytes = b.ColumnBytes(width),
          .shared_from = again ? Recompute::kNone : again_from,
          .in_quantised_layers = true,
          .backward_alone = again};
}

WorkRow GradientRow(const BlockScope& b, Handle id, std::string_view name, int64_t width) {
  return {.id = std::move(id),
          .name = name,
          .shape = {b.tokens, width},
          .format = b.activation,
          .gradient = true};
}

BlockScope::BlockScope(const TrainingPlanOptions& plan_options)
    : options(plan_options),
      shape(plan_options.shape),
      time(TimelineOf(plan_options.shape)),
      tokens(plan_options.micro_batch * plan_options.sequence_length),
      activation(plan_options.recipe->activation),
      quantised(QuantisesActivations(plan_options)),
      columns_again(MakesColumnsAgain(plan_options)),
      narrow(KeepsNarrow(plan_options)),
      plain_operand(quantised ? Recompute::kNone : Recompute::kNormAct) {}

int64_t BlockScope::ColumnBytes(int64_t width) const {
  return quantised ? options.precision.LargestForm(&Recipe::wgrad, &Gemm::a, width, tokens) : 0;
}

double BlockScope::ActivationBytes() const {
  return DTypeBits(activation) / 8.0;
}

double BlockScope::OperandBytes() const {
  return quantised ? DTypeBits(options.precision.recipe->fprop.a.dtype) / 8.0 : ActivationBytes();
}

Handle Of(BufferId GradientBuffers::*id) {
  return [id](StepBuffers& ids, int64_t) -> BufferId& { return ids.gradients.*id; };
}

Handle Of(BufferId HeadBuffers::*id) {
  return [id](StepBuffers& ids, int64_t) -> BufferId& { return ids.head.*id; };
}

}  // namespace hearth::spec
