// The proof that a worker's name belongs to this daemon.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hearth::worker {

// The key in <data_dir>/name.key: 64 hex digits, made at the first start and readable only by the
// owner. The caller holds the folder's lock. kDataLoss: the file holds something else; an errno's
// status otherwise.
absl::StatusOr<std::string> LoadOrMakeNameKey(const std::string& data_dir);

}  // namespace hearth::worker
