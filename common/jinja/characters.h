// Text as Python sees it: characters are code points of UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::jinja {

// Where each character begins, and the end. A byte that is not UTF-8 is a character.
std::vector<size_t> CharacterOffsets(std::string_view text);
size_t CharacterCount(std::string_view text);

// Without the characters at its ends that `characters` has; without white space (that of Unicode)
// where it is null.
std::string_view Strip(std::string_view text, const std::string* characters, bool left, bool right);

// The pieces of `text` between white space.
std::vector<std::string_view> Words(std::string_view text);

// Position of `part` in `text` from `from` on, npos: nowhere. In linear time.
size_t Find(std::string_view text, std::string_view part, size_t from);

}  // namespace hearth::jinja
