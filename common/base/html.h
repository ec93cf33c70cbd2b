// Text in HTML.
#pragma once

#include <string>
#include <string_view>

namespace hearth {

// As text or between quotes in an attribute: & < > " and ' stand for themselves.
std::string HtmlEscaped(std::string_view text);

}  // namespace hearth
