#include "common/weights/stored_blocks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::weights {
namespace {

std::string PrefixOf(const formats::StoredFormat& format) {
  return absl::StrCat(std::string(format.name), ".");
}

}  // namespace

absl::StatusOr<StoredBlocks> StoredBlocks::Open(Env& env,
                                                const std::string& dir,
                                                const std::vector<spec::Parameter>& table,
                                                const formats::StoredFormat& format) {
  StoredBlocks blocks;
  blocks.parameters_.resize(table.size());
  if (format.block == 1) {
    return blocks;
  }
  HEARTH_ASSIGN_OR_RETURN(blocks.files_, StateFiles::Open(env, dir));
  for (size_t k = 0; k < table.size(); ++k) {
    const std::string name = PrefixOf(format) + table[k].name;
    StateFiles::Pieces pieces = blocks.files_.Find(name, TensorDType::kU8);
    if (pieces.empty()) {
      continue;
    }
    const int64_t columns = table[k].shape.back();
    const int64_t bytes = Covered(pieces);
    if (columns % format.block != 0 || bytes != format.Bytes(table[k].logical_elements())) {
      return absl::DataLossError(absl::StrCat(dir, ": tensor \"", name, "\" has ", bytes,
                                              " bytes, not those of the model"));
    }
    blocks.parameters_[k] = {std::move(pieces), format.Bytes(columns)};
  }
  return blocks;
}

int64_t StoredBlocks::tensors() const {
  return std::count_if(parameters_.begin(), parameters_.end(),
                       [](const Blocks& blocks) { return !blocks.pieces.empty(); });
}

bool StoredBlocks::Read(size_t k, int64_t row, int64_t begin, absl::Span<uint8_t> out) const {
  const Blocks& blocks = parameters_[k];
  if (blocks.pieces.empty()) {
    return false;
  }
  ForEachPiece(blocks.pieces, row * blocks.row_bytes + begin, out,
               [](const TensorView& piece, int64_t from, absl::Span<uint8_t> to) {
                 std::copy_n(static_cast<const uint8_t*>(piece.data) + from, to.size(), to.begin());
               });
  return true;
}

absl::StatusOr<bool> HasStoredBlocks(Env& env,
                                     const std::string& dir,
                                     const formats::StoredFormat& format) {
  if (format.block == 1) {
    return false;
  }
  HEARTH_ASSIGN_OR_RETURN(const StateFiles files, StateFiles::Open(env, dir));
  return files.HasAny(PrefixOf(format));
}

}  // namespace hearth::weights
