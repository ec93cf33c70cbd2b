#include "common/spec/plan/blocks/attention_block.h"

#include <utility>

#include "common/spec/plan/blocks/block.h"

namespace hearth::spec {
namespace {

using Ids = AttentionBuffers;

Handle Id(BufferId Ids::*id) {
  return Of(&LayerBuffers::attention, id);
}

std::vector<WeightRow> Weights(const ModelShape& s) {
  const auto part = [](std::string_view name, std::string_view llama, int64_t rows) {
    return WeightPart{name, {llama, "attn.c_attn", "self_attn.qkv_proj"}, rows};
  };
  std::vector<WeightRow> rows = {
      NormWeight(Slot::kAttnNorm, "attn_norm", {"input_layernorm", "ln_1"}, s.hidden, s.norm),
      LinearWeight(
          Slot::kQkv, "qkv",
          {part("q", "self_attn.q_proj", s.q_width()), part("k", "self_attn.k_proj", s.kv_width()),
           part("v", "self_attn.v_proj", s.kv_width())},
          s.hidden, s.attention_bias != AttentionBias::kNone)};
  if (s.spec.qk_norm()) {
    rows.push_back(NormWeight(Slot::kQNorm, "q_norm", {"self_attn.q_norm", ""}, s.head_dim));
    rows.push_back(NormWeight(Slot::kKNorm, "k_norm", {"self_attn.k_norm", ""}, s.head_dim));
  }
  rows.push_back(LinearWeight(Slot::kAttnOut, "attn_out",
                              {{"attn_out", {"self_attn.o_proj", "attn.c_proj"}, s.hidden}},
                              s.q_width(), s.attention_bias == AttentionBias::kAll));
  rows.back().init_scale = ResidualScale(s);
  return rows;
}

bool BackwardMakesColumns(const BlockScope& b) {
  return b.columns_again;
}

std::vector<GemmSites> Sites(const ModelShape& /*shape*/) {
  return {
      NormedSites(Slot::kQkv, Id, Of(&GradientBuffers::attention, &AttentionGradients::qkv),
                  Recompute::kAttention),
      // Attention's backward reads the plain output too, which is kept.
      {.weight = Slot::kAttnOut,
       .x = Id(&Ids::attention),
       .x_columns = Id(&Ids::attention_columns),
       .dy = Of(&GradientBuffers::stream),
       .backward_makes_columns = &BackwardMakesColumns,
       .again_from = Recompute::kBlock},
  };
}

std::vector<ActivationRow> Activations(const BlockScope& b) {
  const ModelShape& s = b.shape;
  const int64_t n = b.tokens;
  // Shapes that only models with QK-norm have.
  const auto normed = [&s](std::vector<int64_t> shape) {
    return s.spec.qk_norm() ? std::move(shape) : std::vector<int64_t>();
  };
  std::vector<ActivationRow> rows = NormedRows(b, Id);
  rows.insert(rows.end(),
              {
                  {.id = Id(&Ids::qkv),
                   .name = "qkv",
                   .shape = {n, s.qkv_width()},
                   .format = b.activation,
                   .shared_from = Recompute::kAttention},
                  {.id = Id(&Ids::rotated),
                   .name = "rotated",
                   .shape = normed({n, s.qkv_width()}),
                   .format = b.activation,
                   .shared_from = Recompute::kAttention},
                  {.id = Id(&Ids::qk_stats),
                   .name = "qk_stats",
                   .shape = normed({n, s.heads + s.kv_heads}),
                   .format = DType::kF32,
                   .shared_from = Recompute::kAttention},
                  {.id = Id(&Ids::attention),
                   .name = "attention",
                   .shape = {n, s.q_width()},
                   .format = b.activation,
                   .shared_from = Recompute::kAttention},
                  // Attention's backward reads its output in full precision, wgrad these.
                  ColumnsRow(b, Id(&Ids::attention_columns), "attention_columns", s.q_width(),
                             BackwardMakesColumns(b), Recompute::kAttention),
                  {.id = Id(&Ids::lse),
                   .name = "lse",
                   .shape = {b.options.micro_batch, s.heads, b.options.sequence_length},
                   .format = DType::kF32,
                   .shared_from = Recompute::kAttention},
              });
  return rows;
}

std::vector<WorkRow> Work(const BlockScope& b) {
  return {
      GradientRow(b, Of(&GradientBuffers::attention, &AttentionGradients::attention),
                  "grad.attention", b.shape.q_width()),
      GradientRow(b, Of(&GradientBuffers::attention, &AttentionGradients::qkv), "grad.qkv",
                  b.shape.qkv_width()),
  };
}

std::vector<PassRow> Passes(const BlockScope& b) {
  const ModelShape& s = b.shape;
  const double w = b.ActivationBytes();
  const double o = b.OperandBytes();
  const auto qkv = static_cast<double>(s.qkv_width());
  const auto q = static_cast<double>(s.q_width());
  // A product of scores: 2 operations for each of half of T keys and each of q values.
  const double product = static_cast<double>(b.options.sequence_length) * q;
  std::vector<PassRow> rows = {
      NormPass(b),
      {.name = "rope",
       .forward_bytes = 2 * qkv * w,
       // It writes the gradient as the products of qkv read it.
       .backward_bytes = b.quantised ? qkv * (w + 2 * o) : 2 * qkv * w,
       .again_from = Recompute::kAttention},
      {.name = "attention",
       .forward_flops = 2 * product,
       .backward_flops = 5 * product,
       .again_from = Recompute::kAttention},
  };
  if (b.quantised) {
    rows.push_back({.name = "attention output, quantised", .forward_bytes = q * (w + 2 * o)});
  }
  if (s.attention_bias != AttentionBias::kNone) {
    const bool all = s.attention_bias == AttentionBias::kAll;
    rows.push_back(BiasPass(b, s.qkv_width() + (all ? s.hidden : 0)));
  }
  return rows;
}

}  // namespace

constinit const Block kAttentionBlock = {"mixer", &Weights, &Sites, &Activations, &Work, &Passes};

}  // namespace hearth::spec
