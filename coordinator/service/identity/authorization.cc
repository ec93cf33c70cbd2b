#include "coordinator/service/identity/authorization.h"

#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"
#include "common/rpc/grpc_status.h"

namespace hearth::coordinator {

absl::Status Unauthenticated(const std::string& reason, const std::string& text) {
  return rpc::MakeError(absl::StatusCode::kUnauthenticated, text, reason);
}

absl::StatusOr<std::string> BearerOf(std::string_view header) {
  absl::string_view secret(header.data(), header.size());
  if (!absl::ConsumePrefix(&secret, "Bearer ") && !absl::ConsumePrefix(&secret, "bearer ")) {
    return Unauthenticated("BAD_TOKEN", "authorization is not \"Bearer TOKEN\"");
  }
  return std::string(secret);
}

absl::StatusOr<std::string> PasswordOf(std::string_view header) {
  absl::string_view encoded(header.data(), header.size());
  std::string pair;
  const bool basic =
      absl::ConsumePrefix(&encoded, "Basic ") && absl::Base64Unescape(encoded, &pair);
  const size_t colon = pair.find(':');
  if (!basic || colon == std::string::npos) {
    return Unauthenticated("BAD_TOKEN", "authorization is neither \"Bearer\" nor \"Basic\"");
  }
  return pair.substr(colon + 1);
}

}  // namespace hearth::coordinator
