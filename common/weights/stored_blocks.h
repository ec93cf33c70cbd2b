// Weights in blocks (weights.store) of a checkpoint, as its state/ has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/formats/stored_formats.h"
#include "common/io/env.h"
#include "common/spec/model/parameter.h"
#include "common/weights/state_files.h"

namespace hearth::weights {

// Immutable, thread-safe.
class StoredBlocks {
 public:
  // Those in `format` of parameters of the table; none where `dir` is no checkpoint with them.
  // kDataLoss: a file is damaged, or has a tensor of another size, or a part of one is missing.
  static absl::StatusOr<StoredBlocks> Open(Env& env,
                                           const std::string& dir,
                                           const std::vector<spec::Parameter>& table,
                                           const formats::StoredFormat& format);

  int64_t tensors() const;
  // Bytes of a row of parameter `k` from `begin` on, laid out as in memory; false: the parameter is
  // not in such blocks.
  bool Read(size_t k, int64_t row, int64_t begin, absl::Span<uint8_t> out) const;

 private:
  struct Blocks {
    StateFiles::Pieces pieces;  // without a gap; bytes
    int64_t row_bytes = 0;
  };
  StateFiles files_;
  std::vector<Blocks> parameters_;  // in the order of the table
};

// Whether the checkpoint's state/ has tensors in blocks of the format. Errors: as Open.
absl::StatusOr<bool> HasStoredBlocks(Env& env,
                                     const std::string& dir,
                                     const formats::StoredFormat& format);

}  // namespace hearth::weights
