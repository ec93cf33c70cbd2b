// Which NCCL this process would use.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hearth::trainer {

// "2.28.3". kUnavailable: none can be loaded, or it is too old; kUnimplemented: a build without it.
absl::StatusOr<std::string> NcclVersion();

}  // namespace hearth::trainer
