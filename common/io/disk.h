// How much room a file system has.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace hearth {

struct DiskSpace {
  int64_t free_bytes = 0;  // for this user
  int64_t total_bytes = 0;
};

// Sizes of the file system that holds `path`, or its nearest existing parent. May hang when the
// file system hangs. kNotFound, kPermissionDenied...: the text names the path.
absl::StatusOr<DiskSpace> ReadDiskSpace(std::string path);

}  // namespace hearth
