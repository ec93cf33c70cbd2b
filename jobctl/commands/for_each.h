// One command for several jobs or workers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth::jobctl {

// Calls `change` with each name, in order. With one name its error is the result. With several,
// each error is told as that of "`kind`/NAME" and the others go on; the result is then kExitError.
// A caller that the coordinator refuses ends it at once.
absl::StatusOr<int> ForEach(std::string_view kind,
                            const std::vector<std::string>& names,
                            const std::function<absl::Status(const std::string& name)>& change);

}  // namespace hearth::jobctl
