#include "common/weights/stored_blocks.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/weights/state_average.h"

namespace hearth::weights {
namespace {

// The file of whole tensors; weights in blocks are never divided.
std::string StateFileOf(const std::string& dir) {
  return absl::StrCat(dir, "/", std::string(kStateFolder), "/tensors", std::string(kStateFileEnd));
}

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
  const std::string path = StateFileOf(dir);
  if (format.block == 1 || !env.Exists(path)) {
    return blocks;
  }
  HEARTH_ASSIGN_OR_RETURN(blocks.file_, SafetensorsFile::Open(env, path));
  for (size_t k = 0; k < table.size(); ++k) {
    const TensorView* const tensor = blocks.file_->Find(PrefixOf(format) + table[k].name);
    if (tensor == nullptr) {
      continue;
    }
    const int64_t columns = table[k].shape.back();
    if (tensor->dtype != TensorDType::kU8 || columns % format.block != 0 ||
        tensor->bytes() != format.Bytes(table[k].logical_elements())) {
      return absl::DataLossError(absl::StrCat(path, ": tensor \"", tensor->name, "\" has ",
                                              tensor->bytes(), " bytes, not those of the model"));
    }
    blocks.parameters_[k] = {static_cast<const uint8_t*>(tensor->data), format.Bytes(columns)};
  }
  return blocks;
}

int64_t StoredBlocks::tensors() const {
  return std::count_if(parameters_.begin(), parameters_.end(),
                       [](const Blocks& blocks) { return blocks.data != nullptr; });
}

const uint8_t* StoredBlocks::Row(size_t k, int64_t row) const {
  const Blocks& blocks = parameters_[k];
  return blocks.data == nullptr ? nullptr : blocks.data + row * blocks.row_bytes;
}

absl::StatusOr<bool> HasStoredBlocks(Env& env,
                                     const std::string& dir,
                                     const formats::StoredFormat& format) {
  const std::string path = StateFileOf(dir);
  if (format.block == 1 || !env.Exists(path)) {
    return false;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsFile> file,
                          SafetensorsFile::Open(env, path));
  const std::string prefix = PrefixOf(format);
  return std::any_of(
      file->tensors().begin(), file->tensors().end(),
      [&prefix](const TensorView& tensor) { return absl::StartsWith(tensor.name, prefix); });
}

}  // namespace hearth::weights
