// Weights in blocks (weights.store) of a checkpoint, as its state/ has them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/formats/stored_formats.h"
#include "common/io/env.h"
#include "common/spec/model/parameter.h"
#include "common/weights/safetensors.h"

namespace hearth::weights {

// Immutable, thread-safe.
class StoredBlocks {
 public:
  // Those in `format` of parameters of the table; none where `dir` is no checkpoint with them.
  // kDataLoss: the file is damaged, or a tensor in it has another size.
  static absl::StatusOr<StoredBlocks> Open(Env& env,
                                           const std::string& dir,
                                           const std::vector<spec::Parameter>& table,
                                           const formats::StoredFormat& format);

  int64_t tensors() const;
  // A row of parameter `k`, laid out as in memory; null: the parameter is not in such blocks.
  const uint8_t* Row(size_t k, int64_t row) const;

 private:
  struct Blocks {
    const uint8_t* data = nullptr;
    int64_t row_bytes = 0;
  };
  std::unique_ptr<SafetensorsFile> file_;
  std::vector<Blocks> parameters_;  // in the order of the table
};

// Whether the checkpoint's state/ has tensors in blocks of the format. Errors: as Open.
absl::StatusOr<bool> HasStoredBlocks(Env& env,
                                     const std::string& dir,
                                     const formats::StoredFormat& format);

}  // namespace hearth::weights
