#include "common/spec/plan/blocks/embedding_block.h"

#include "common/spec/plan/blocks/block.h"

namespace hearth::spec {
namespace {

WeightRow Table(
    Slot slot, std::string_view name, HfModule module, int64_t rows, const ModelShape& shape) {
  return {.slot = slot,
          .name = name,
          .kind = WeightKind::kTable,
          .group = ParameterGroup::kEmbedding,
          .parts = {{name, module, rows}},
          .cols = shape.hidden};
}

std::vector<WeightRow> Weights(const ModelShape& s) {
  std::vector<WeightRow> rows = {
      Table(Slot::kTokenEmbedding, "wte", {"embed_tokens", "wte"}, s.vocab, s)};
  rows.back().padded_rows = s.padded_vocab;
  if (s.position == Position::kLearned) {
    rows.push_back(
        Table(Slot::kPositionEmbedding, "wpe", {"embed_positions", "wpe"}, s.max_position, s));
  }
  return rows;
}

// Backward sorts the tokens and sums the gradients of each row: as long as six passes of a copy,
// measured on an H200.
std::vector<PassRow> Passes(const BlockScope& b) {
  const double row = static_cast<double>(b.shape.hidden) * b.ActivationBytes();
  return {{.name = "embedding", .forward_bytes = 2 * row, .backward_bytes = 6 * row}};
}

}  // namespace

constinit const Block kEmbeddingBlock = {
    .place = "embedding", .weights = &Weights, .passes = &Passes};

}  // namespace hearth::spec
