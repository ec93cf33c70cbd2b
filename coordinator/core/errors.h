// Errors of the API, with the google.rpc.ErrorInfo payload that clients read.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace hearth::coordinator {

// `reason` is UPPER_SNAKE_CASE, domain is "hearth". Payload URL:
// type.googleapis.com/google.rpc.ErrorInfo.
absl::Status MakeError(absl::StatusCode code,
                       const std::string& reason,
                       const std::string& message,
                       const std::map<std::string, std::string>& metadata = {});

google::protobuf::Timestamp ToProto(absl::Time time);
absl::Time FromProto(const google::protobuf::Timestamp& time);

}  // namespace hearth::coordinator
