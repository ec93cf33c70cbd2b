// Tokens in "authorization" headers.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth::coordinator {

absl::Status Unauthenticated(const std::string& reason, const std::string& text);

// The token of "Bearer TOKEN". kUnauthenticated: it is something else.
absl::StatusOr<std::string> BearerOf(std::string_view header);

// The password of "Basic base64(user:password)" (RFC 7617). kUnauthenticated: it is something else.
absl::StatusOr<std::string> PasswordOf(std::string_view header);

}  // namespace hearth::coordinator
