#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace hearth {

// `status` with "context: " put before its message, code and payloads kept. OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view context);

}  // namespace hearth
