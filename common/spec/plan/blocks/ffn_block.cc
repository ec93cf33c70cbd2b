#include "common/spec/plan/blocks/ffn_block.h"

namespace hearth::spec {
namespace {

constexpr LayerBlock<FfnBuffers> kBlock = {
    "ffn", &LayerBuffers::ffn, [](const LayerRow& row) { return row.ffn == FfnKind::kDense; },
    &StepTimeline::FfnForward, &StepTimeline::FfnBackward};

bool BackwardMakesColumns(const BlockScope& b) {
  return b.narrow || b.four_bits;
}

ActivationRows<FfnBuffers> Rows(const BlockScope& b) {
  using Ids = FfnBuffers;
  const ModelShape& s = b.shape;
  const int64_t n = b.tokens;
  const bool again = BackwardMakesColumns(b);
  return {
      {.id = &Ids::input, .name = "input", .shape = {n, s.hidden}, .format = b.activation},
      {.id = &Ids::norm,
       .name = "norm",
       .shape = {n, s.hidden},
       .format = b.activation,
       .shared_from = b.plain_operand,
       .stand_in = &GradientBuffers::norm},
      {.id = &Ids::norm_columns,
       .name = "norm_columns",
       .bytes = b.ColumnBytes(s.hidden),
       .shared_from = b.four_bits ? Recompute::kNone : Recompute::kNormAct,
       .in_quantised_layers = true},
      {.id = &Ids::norm_stats,
       .name = "norm_stats",
       .shape = {2, n},
       .format = DType::kF32,
       .shared_from = Recompute::kNormAct},
      {.id = &Ids::projected,
       .name = "projected",
       .shape = {n, s.ffn_in_width()},
       .format = b.activation,
       .shared_from = b.narrow ? Recompute::kNone : Recompute::kFfn},
      {.id = &Ids::kept,
       .name = "kept",
       .bytes = b.narrow ? n * s.ffn_in_width() + n * s.ffn_in_width() / kKeptBlock : 0,
       .shared_from = Recompute::kFfn,
       .in_quantised_layers = true},
      {.id = &Ids::activated,
       .name = "activated",
       .shape = {n, s.ffn_hidden},
       .format = b.activation,
       .shared_from = b.plain_operand,
       .stand_in = &GradientBuffers::activated},
      {.id = &Ids::activated_columns,
       .name = "activated_columns",
       .bytes = b.ColumnBytes(s.ffn_hidden),
       .shared_from = again ? Recompute::kNone : Recompute::kNormAct,
       .in_quantised_layers = true,
       .backward_alone = again},
  };
}

}  // namespace

void AddFfn(const BlockScope& scope, PlanBuilder& out) {
  AddActivations(scope, kBlock, Rows(scope), out);
  for (LayerBuffers& layer : out.ids().layers) {
    layer.ffn.backward_makes_columns = BackwardMakesColumns(scope);
  }
}

void AddNormGradient(const BlockScope& scope, PlanBuilder& out) {
  const int32_t first = FirstUse(scope, Rows(scope), &GradientBuffers::norm, scope.time.Head());
  out.ids().gradients.norm =
      out.Floats("grad.norm", BufferClass::kWorkspace, scope.activation,
                 {scope.tokens, scope.shape.hidden}, {first, scope.time.MixerBackward(0)});
}

void AddFfnGradients(const BlockScope& scope, PlanBuilder& out) {
  const int32_t first =
      FirstUse(scope, Rows(scope), &GradientBuffers::activated, scope.time.Head() + 1);
  out.ids().gradients.activated =
      out.Floats("grad.ffn_act", BufferClass::kWorkspace, scope.activation,
                 {scope.tokens, scope.shape.ffn_hidden}, {first, scope.time.FfnBackward(0)});
  BindStandIns(scope, Rows(scope), &LayerBuffers::ffn, out.ids());
}

}  // namespace hearth::spec
