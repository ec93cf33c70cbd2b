// absl::Status <-> grpc::Status, with google.rpc details kept both ways.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/support/status.h"

namespace hearth::rpc {

// Payloads whose type URL starts with "type.googleapis.com/" travel as Any details of a
// google.rpc.Status in grpc-status-details-bin; others are dropped.
grpc::Status ToGrpc(const absl::Status& status);

// The inverse; details become payloads under their type URL.
absl::Status FromGrpc(const grpc::Status& status);

// `type.googleapis.com/` + the full name of Message.
template <typename Message>
std::string TypeUrl() {
  return "type.googleapis.com/" + Message::descriptor()->full_name();
}

// Puts `detail` on `status`, replacing one of the same type. No-op on OK.
template <typename Message>
void SetDetail(absl::Status& status, const Message& detail) {
  status.SetPayload(TypeUrl<Message>(), absl::Cord(detail.SerializeAsString()));
}

// True and fills `detail` when `status` carries one that parses.
template <typename Message>
bool GetDetail(const absl::Status& status, Message& detail) {
  const auto payload = status.GetPayload(TypeUrl<Message>());
  return payload.has_value() && detail.ParseFromString(std::string(*payload));
}

// An error with ErrorInfo{reason, domain "hearth", metadata}; `reason` is UPPER_SNAKE_CASE.
absl::Status MakeError(absl::StatusCode code,
                       std::string_view message,
                       std::string_view reason,
                       const std::map<std::string, std::string>& metadata = {});

// kNotFound "job "x" not found" with ErrorInfo (reason NOT_FOUND) and ResourceInfo; `type` as in
// "job", "worker".
absl::Status NotFoundError(std::string_view type, std::string_view name);

// kFailedPrecondition with ErrorInfo and PreconditionFailure{type, subject, description = message}.
absl::Status PreconditionError(std::string_view message,
                               std::string_view reason,
                               std::string_view type,
                               std::string_view subject);

// kUnavailable with ErrorInfo and RetryInfo.
absl::Status UnavailableError(std::string_view message,
                              std::string_view reason,
                              absl::Duration retry_after);

// Reason of the ErrorInfo, or "".
std::string ErrorReason(const absl::Status& status);

// For people: message, then each field violation on a line of its own, then "retry in ..." when
// given.
std::string Describe(const absl::Status& status);

}  // namespace hearth::rpc
