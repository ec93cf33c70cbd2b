// Makes text from elsewhere fit to be sent on or stored.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hearth {

// `text` cut to `max_bytes` at the end of a UTF-8 character, with control characters other than
// line ends and tabs replaced by '?'.
std::string ClipText(std::string_view text, size_t max_bytes);

// The same cut, but replaces nothing. A part of `text`.
std::string_view ClipBytes(std::string_view text, size_t max_bytes);

}  // namespace hearth
