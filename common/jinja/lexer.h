// Templates cut into text and tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth::jinja {

// Where something stands in a template, both from 1; columns count bytes.
struct Place {
  int line = 1;
  int column = 1;
};

struct Token {
  enum class Kind {
    kText,      // outside of tags, with white space already removed as the tags around it ask
    kBlock,     // {%
    kBlockEnd,  // %}
    kPrint,     // {{
    kPrintEnd,  // }}
    kName,
    kString,  // `text` is its value
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // of the template
  };
  Kind kind = Kind::kEnd;
  std::string text;
  Place place;
};

// "name:3:7: what": an error at a place of the template called `name`.
absl::Status SyntaxError(std::string_view name, const Place& place, std::string_view what);
// The same for what Jinja has and this program lacks: kUnimplemented.
absl::Status Refusal(std::string_view name, const Place& place, std::string_view what);

// Ends in a kEnd. White space as with trim_blocks and lstrip_blocks, which chat templates are
// written for. kInvalidArgument: a tag without end, an unknown character, more than 1 MiB.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view text, std::string_view name);

}  // namespace hearth::jinja
