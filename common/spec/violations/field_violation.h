// What is wrong with a spec, field by field, and the status that says so.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hearth::spec {

// The payload with the violations of a status: a google.rpc.BadRequest.
inline constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";

struct FieldViolation {
  std::string field;        // path as in the job file, e.g. "model.kv_heads"
  std::string description;  // a sentence, with the value and what would be right
};

// kInvalidArgument whose text lists all violations, one a line "field: description", with the
// violations as payload of kBadRequestUrl. OK when there are none.
absl::Status ViolationsToStatus(const std::vector<FieldViolation>& violations);

}  // namespace hearth::spec
