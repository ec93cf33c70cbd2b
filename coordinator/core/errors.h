// Errors of the API, with the google.rpc.ErrorInfo payload that clients read.
#pragma once

#include <cstdint>
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

// kInvalidArgument FIELD_OUT_OF_BOUNDS: an agent reported a step that the job cannot have.
absl::Status FieldError(const std::string& field, int64_t value, int64_t max);

// kNotFound JOB_NOT_FOUND, WORKER_NOT_FOUND.
absl::Status JobNotFound(const std::string& job_id);
absl::Status WorkerNotFound(const std::string& worker_id);
// kAborted ETAG_MISMATCH.
absl::Status EtagMismatch(const std::string& job_id);

google::protobuf::Timestamp ToProto(absl::Time time);
absl::Time FromProto(const google::protobuf::Timestamp& time);

}  // namespace hearth::coordinator
