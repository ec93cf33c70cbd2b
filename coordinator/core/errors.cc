#include "coordinator/core/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

namespace hearth::coordinator {

absl::Status MakeError(absl::StatusCode code,
                       const std::string& reason,
                       const std::string& message,
                       const std::map<std::string, std::string>& metadata) {
  absl::Status status(code, message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("hearth");
  for (const auto& [key, value] : metadata) {
    (*info.mutable_metadata())[key] = value;
  }
  status.SetPayload("type.googleapis.com/google.rpc.ErrorInfo",
                    absl::Cord(info.SerializeAsString()));
  return status;
}

absl::Status FieldError(const std::string& field, int64_t value, int64_t max) {
  return MakeError(absl::StatusCode::kInvalidArgument, "FIELD_OUT_OF_BOUNDS",
                   absl::StrCat(field, " is ", value, "; this job's steps are within 1..", max),
                   {{"field", field}});
}

absl::Status JobNotFound(const std::string& job_id) {
  return MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", absl::StrCat("no job ", job_id),
                   {{"job_id", job_id}});
}

absl::Status WorkerNotFound(const std::string& worker_id) {
  return MakeError(absl::StatusCode::kNotFound, "WORKER_NOT_FOUND",
                   absl::StrCat("no worker ", worker_id), {{"worker_id", worker_id}});
}

absl::Status EtagMismatch(const std::string& job_id) {
  return MakeError(absl::StatusCode::kAborted, "ETAG_MISMATCH",
                   absl::StrCat("job ", job_id, " has changed since it was read; read it again"));
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp out;
  const absl::Duration since = time - absl::UnixEpoch();
  const int64_t seconds = absl::ToUnixSeconds(time);
  out.set_seconds(seconds);
  out.set_nanos(static_cast<int32_t>((since - absl::Seconds(seconds)) / absl::Nanoseconds(1)));
  return out;
}

absl::Time FromProto(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

}  // namespace hearth::coordinator
