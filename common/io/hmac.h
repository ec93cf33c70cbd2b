// HMAC with SHA-256 (RFC 2104).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hearth {

inline constexpr size_t kHmacBytes = 32;

// kHmacBytes bytes.
std::string HmacSha256(std::string_view secret, std::string_view text);

}  // namespace hearth
