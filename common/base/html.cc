#include "common/base/html.h"

#include "absl/strings/str_replace.h"

namespace hearth {

std::string HtmlEscaped(std::string_view text) {
  return absl::StrReplaceAll(
      std::string(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

}  // namespace hearth
