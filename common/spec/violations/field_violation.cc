#include "common/spec/violations/field_violation.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "common/spec/violations/text.h"
#include "google/rpc/error_details.pb.h"

namespace hearth::spec {

absl::Status ViolationsToStatus(const std::vector<FieldViolation>& violations) {
  if (violations.empty()) {
    return absl::OkStatus();
  }
  std::string text;
  google::rpc::BadRequest details;
  for (const FieldViolation& violation : violations) {
    text += Text(text.empty() ? "" : "\n", violation.field, ": ", violation.description);
    auto& entry = *details.add_field_violations();
    entry.set_field(violation.field);
    entry.set_description(violation.description);
  }
  absl::Status status = absl::InvalidArgumentError(text);
  status.SetPayload(kBadRequestUrl, absl::Cord(details.SerializeAsString()));
  return status;
}

}  // namespace hearth::spec
