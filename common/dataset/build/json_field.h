// The text of a field in a line of JSON, found without making a tree of the line.
#pragma once

#include <optional>
#include <string_view>

#include "common/dataset/byte_buffer.h"

namespace hearth::dataset {

// Finds the string that `field` names (a name, or names with dots between them), and what its
// backslashes stand for. The text lies in `line`, or in `scratch` if it has backslashes; the latter
// is overwritten. The line is checked as a whole: where a text is found, it is JSON in valid UTF-8,
// and the text has no NUL. Nothing: the line is no JSON object or has no such string, or it has
// something rare (the field twice, names with backslashes, numbers out of range, deep nesting), for
// which a complete parser must be asked.
std::optional<std::string_view> FindJsonString(std::string_view line,
                                               std::string_view field,
                                               ByteBuffer* scratch);

}  // namespace hearth::dataset
