// One record of a CSV file (RFC 4180).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hearth::dataset {

// The fields of a record without its line end. Strict: a field either has no quotes, or is in
// quotes as a whole, with those inside it doubled. kInvalidArgument names `where` and the byte.
absl::StatusOr<std::vector<std::string>> ParseCsvRecord(std::string_view record,
                                                        std::string_view where);

}  // namespace hearth::dataset
