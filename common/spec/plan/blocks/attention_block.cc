#include "common/spec/plan/blocks/attention_block.h"

namespace hearth::spec {
namespace {

constexpr LayerBlock<AttentionBuffers> kBlock = {
    "mixer", &LayerBuffers::attention,
    [](const LayerRow& row) { return row.mixer == MixerKind::kAttention; },
    &StepTimeline::MixerForward, &StepTimeline::MixerBackward};

bool BackwardMakesColumns(const BlockScope& b) {
  return b.four_bits;
}

ActivationRows<AttentionBuffers> Rows(const BlockScope& b) {
  using Ids = AttentionBuffers;
  const ModelShape& s = b.shape;
  const int64_t n = b.tokens;
  const bool again = BackwardMakesColumns(b);
  // Shapes that only models with QK-norm have.
  const auto normed = [&s](std::vector<int64_t> shape) {
    return s.spec.qk_norm() ? std::move(shape) : std::vector<int64_t>();
  };
  return {
      {.id = &Ids::input,
       .name = "input",
       .shape = {n, s.hidden},
       .format = b.activation,
       .input = true},
      {.id = &Ids::norm,
       .name = "norm",
       .shape = {n, s.hidden},
       .format = b.activation,
       .shared_from = b.plain_operand},
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
      {.id = &Ids::qkv,
       .name = "qkv",
       .shape = {n, s.qkv_width()},
       .format = b.activation,
       .shared_from = Recompute::kAttention},
      {.id = &Ids::rotated,
       .name = "rotated",
       .shape = normed({n, s.qkv_width()}),
       .format = b.activation,
       .shared_from = Recompute::kAttention},
      {.id = &Ids::qk_stats,
       .name = "qk_stats",
       .shape = normed({n, s.heads + s.kv_heads}),
       .format = DType::kF32,
       .shared_from = Recompute::kAttention},
      {.id = &Ids::attention,
       .name = "attention",
       .shape = {n, s.q_width()},
       .format = b.activation,
       .shared_from = Recompute::kAttention},
      // Attention's backward reads its output in full precision, wgrad these.
      {.id = &Ids::attention_columns,
       .name = "attention_columns",
       .bytes = b.ColumnBytes(s.q_width()),
       .shared_from = again ? Recompute::kNone : Recompute::kAttention,
       .in_quantised_layers = true,
       .backward_alone = again},
      {.id = &Ids::lse,
       .name = "lse",
       .shape = {b.options.micro_batch, s.heads, b.options.sequence_length},
       .format = DType::kF32,
       .shared_from = Recompute::kAttention},
  };
}

}  // namespace

void AddAttention(const BlockScope& scope, PlanBuilder& out) {
  AddActivations(scope, kBlock, Rows(scope), out);
  for (LayerBuffers& layer : out.ids().layers) {
    layer.attention.backward_makes_columns = BackwardMakesColumns(scope);
  }
}

void AddAttentionGradients(const BlockScope& scope, PlanBuilder& out) {
  const ModelShape& s = scope.shape;
  const Lifetime life = {scope.time.Head() + 2, scope.time.MixerBackward(0)};
  GradientBuffers& ids = out.ids().gradients;
  ids.attention = out.Floats("grad.attention", BufferClass::kWorkspace, scope.activation,
                             {scope.tokens, s.q_width()}, life);
  ids.qkv = out.Floats("grad.qkv", BufferClass::kWorkspace, scope.activation,
                       {scope.tokens, s.qkv_width()}, life);
}

}  // namespace hearth::spec
