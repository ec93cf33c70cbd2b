#include "common/spec/plan/blocks/head_block.h"

#include "common/spec/plan/blocks/block.h"

namespace hearth::spec {
namespace {

using Ids = HeadBuffers;

std::vector<WeightRow> Weights(const ModelShape& s) {
  std::vector<WeightRow> rows = {
      NormWeight(Slot::kFinalNorm, "final_norm", {"norm", "ln_f"}, s.hidden, s.norm)};
  if (!s.spec.tied()) {
    rows.push_back({.slot = Slot::kLmHead,
                    .name = "lm_head",
                    .group = ParameterGroup::kHead,
                    .parts = {{"lm_head", {"lm_head", "lm_head"}, s.vocab}},
                    .padded_rows = s.padded_vocab,
                    .cols = s.hidden,
                    .hf_outside = true});
  }
  return rows;
}

std::vector<GemmSites> Sites(const ModelShape& s) {
  return {{.weight = s.spec.tied() ? Slot::kTokenEmbedding : Slot::kLmHead,
           .x = Of(&Ids::norm),
           .x_columns = Of(&Ids::columns)}};
}

std::vector<WorkRow> Work(const BlockScope& b) {
  const int64_t n = b.tokens;
  const int64_t hidden = b.shape.hidden;
  const Lifetime life = {b.time.Head(), b.time.Head()};
  const PrecisionPlan& precision = b.options.precision;
  const bool quantised = b.options.training && precision.quantised() && precision.head;
  const int64_t row_bytes = quantised ? FormBytes(precision.recipe->fprop.a, n, hidden) : 0;
  const int64_t column_bytes = quantised ? FormBytes(precision.recipe->wgrad.a, hidden, n) : 0;
  return {
      {.id = Of(&Ids::norm_stats),
       .name = "head.norm_stats",
       .shape = {2, n},
       .format = DType::kF32,
       .life = life},
      {.id = Of(&Ids::input),
       .name = "head.input",
       .shape = {n, hidden},
       .format = b.activation,
       .life = life},
      {.id = Of(&Ids::norm),
       .name = "head.norm",
       .shape = {n, hidden},
       .format = b.activation,
       .life = life},
      {.id = Of(&Ids::rows), .name = "head.rows", .bytes = row_bytes, .life = life},
      {.id = Of(&Ids::columns), .name = "head.columns", .bytes = column_bytes, .life = life},
  };
}

// The loss reads the logits and writes their gradient in their place.
std::vector<PassRow> Passes(const BlockScope& b) {
  PassRow norm = NormPass(b);
  norm.again_from.reset();
  return {norm,
          {.name = "loss",
           .forward_bytes = 2 * static_cast<double>(b.shape.padded_vocab) * b.ActivationBytes()}};
}

}  // namespace

constinit const Block kHeadBlock = {
    .place = "head", .weights = &Weights, .sites = &Sites, .work = &Work, .passes = &Passes};

}  // namespace hearth::spec
