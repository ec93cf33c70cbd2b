// The string methods of Python that lm-evaluation-harness's prompts are made with. All text is
// valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::trainer {

// str.strip(): without white space at both ends (str.isspace).
std::string_view Strip(std::string_view text);
// Bytes of the white space at its end: what str.rstrip() takes away.
size_t TrailingSpace(std::string_view text);
// str.capitalize(): the first character in upper case, the others in lower case. Differs from
// Python in characters that become several (German sharp s) and in the final sigma of Greek.
std::string Capitalize(std::string_view text);
// len(str): characters, not bytes.
int64_t Characters(std::string_view text);

}  // namespace hearth::trainer
