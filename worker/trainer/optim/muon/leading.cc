#include "worker/trainer/optim/muon/leading.h"

#include <cstddef>
#include <cstdint>

#include "common/base/status_macros.h"
#include "common/formats/leading_blocks.h"

namespace hearth::trainer {

std::vector<kernels::MuonLeadingMatrix> LeadingMatrices(const std::vector<spec::Parameter>& table,
                                                        const StorePiece& piece) {
  constexpr int64_t kRank = formats::kLeadingRank;
  constexpr int64_t kBlock = formats::kLeadingBlock;
  const auto parameter = static_cast<size_t>(piece.place.parameter);
  HEARTH_CHECK(table[parameter].states[0].codec == formats::StateCodec::kLeadingSigned4 &&
                   piece.states.size() >= 5,
               "codes, scales, left, right and unit");
  HEARTH_CHECK(piece.place.elements == table[parameter].elements(), "the rules let nobody cut it");
  uint32_t index = 0;
  for (size_t i = 0; i < parameter; ++i) {
    index += static_cast<uint32_t>(table[i].matrices.size());
  }
  std::vector<kernels::MuonLeadingMatrix> matrices;
  int64_t first_col = 0;  // of R: its matrices lie one behind the other
  for (const spec::LogicalMatrix& matrix : table[parameter].matrices) {
    const int64_t first = matrix.row_offset * matrix.cols;
    const int64_t count = matrix.rows * matrix.cols;
    kernels::MuonLeadingMatrix& added = matrices.emplace_back();
    added.codes = Slice(piece.states[0], first / 2, count / 2);
    added.scales = Slice(piece.states[1], first / kBlock, count / kBlock);
    added.left = Slice(piece.states[2], matrix.row_offset * kRank, matrix.rows * kRank);
    added.right = Slice(piece.states[3], first_col * kRank, matrix.cols * kRank);
    added.unit = Slice(piece.states[4], static_cast<int64_t>(matrices.size()) - 1, 1);
    added.grad = Slice(piece.gradient, first, count);
    added.grad.rank = 2;
    added.grad.shape = {matrix.rows, matrix.cols, 0, 0};
    added.index = index++;
    first_col += matrix.cols;
  }
  return matrices;
}

}  // namespace hearth::trainer
