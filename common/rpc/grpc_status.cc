#include "common/rpc/grpc_status.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/units.h"
#include "google/rpc/status.pb.h"

namespace hearth::rpc {
namespace {

constexpr absl::string_view kTypePrefix = "type.googleapis.com/";

std::string Str(absl::string_view s) {
  return {s.data(), s.size()};
}

void SetErrorInfo(absl::Status& status,
                  std::string_view reason,
                  const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain("hearth");
  for (const auto& [key, value] : metadata) {
    (*info.mutable_metadata())[key] = value;
  }
  SetDetail(status, info);
}

absl::Status Make(absl::StatusCode code, std::string_view message) {
  return absl::Status(code, absl::string_view(message.data(), message.size()));
}

}  // namespace

// The two libraries use the same numbers for the same codes.
grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(Str(status.message()));
  status.ForEachPayload([&details](absl::string_view url, const absl::Cord& payload) {
    // Others are marks of this process, and mean nothing to a peer.
    if (absl::StartsWith(url, kTypePrefix)) {
      google::protobuf::Any* const any = details.add_details();
      any->set_type_url(Str(url));
      any->set_value(std::string(payload));
    }
  });
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Str(status.message()),
                      details.details_size() == 0 ? std::string() : details.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  absl::Status out =
      Make(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& any : details.details()) {
      out.SetPayload(any.type_url(), absl::Cord(any.value()));
    }
  }
  return out;
}

absl::Status MakeError(absl::StatusCode code,
                       std::string_view message,
                       std::string_view reason,
                       const std::map<std::string, std::string>& metadata) {
  absl::Status status = Make(code, message);
  SetErrorInfo(status, reason, metadata);
  return status;
}

absl::Status NotFoundError(std::string_view type, std::string_view name) {
  absl::Status status = MakeError(
      absl::StatusCode::kNotFound,
      absl::StrCat(std::string(type), " \"", std::string(name), "\" not found"), "NOT_FOUND");
  google::rpc::ResourceInfo resource;
  resource.set_resource_type(std::string(type));
  resource.set_resource_name(std::string(name));
  SetDetail(status, resource);
  return status;
}

absl::Status PreconditionError(std::string_view message,
                               std::string_view reason,
                               std::string_view type,
                               std::string_view subject) {
  absl::Status status = MakeError(absl::StatusCode::kFailedPrecondition, message, reason);
  google::rpc::PreconditionFailure failure;
  google::rpc::PreconditionFailure::Violation* const violation = failure.add_violations();
  violation->set_type(std::string(type));
  violation->set_subject(std::string(subject));
  violation->set_description(std::string(message));
  SetDetail(status, failure);
  return status;
}

absl::Status UnavailableError(std::string_view message,
                              std::string_view reason,
                              absl::Duration retry_after) {
  absl::Status status = MakeError(absl::StatusCode::kUnavailable, message, reason);
  google::rpc::RetryInfo retry;
  const int64_t nanos = absl::ToInt64Nanoseconds(retry_after);
  retry.mutable_retry_delay()->set_seconds(nanos / 1'000'000'000);
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
  SetDetail(status, retry);
  return status;
}

std::string ErrorReason(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  return GetDetail(status, info) ? info.reason() : "";
}

std::string Describe(const absl::Status& status) {
  std::string out = Str(status.message());
  if (out.empty()) {
    out = absl::StatusCodeToString(status.code());
  }
  google::rpc::BadRequest bad;
  if (GetDetail(status, bad)) {
    for (const auto& violation : bad.field_violations()) {
      const std::string line = absl::StrCat(violation.field(), ": ", violation.description());
      // The message of a status made from violations already lists them.
      if (!absl::StrContains(out, line)) {
        absl::StrAppend(&out, "\n  ", line);
      }
    }
  }
  google::rpc::RetryInfo retry;
  if (GetDetail(status, retry)) {
    const absl::Duration delay = absl::Seconds(retry.retry_delay().seconds()) +
                                 absl::Nanoseconds(retry.retry_delay().nanos());
    absl::StrAppend(&out, "\n  retry in ", HumanDuration(delay));
  }
  return out;
}

}  // namespace hearth::rpc
