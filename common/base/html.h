// Text in HTML.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace hearth {

// As text or between quotes in an attribute: & < > " and ' stand for themselves.
std::string HtmlEscaped(absl::string_view text);

}  // namespace hearth
