#include "coordinator/http/runbook.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/html.h"

namespace hearth::coordinator {
namespace {

// "HearthJobStuck" -> "hearthjobstuck".
std::string Anchor(absl::string_view heading) {
  std::string out;
  for (const char c : heading) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') {
      out += absl::ascii_tolower(static_cast<unsigned char>(c));
    } else if (c == ' ') {
      out += '-';
    }
  }
  return out;
}

// If `rest` begins with `code`, or with a whole [text](to): appends it to `out` and takes it away.
bool TakeMark(absl::string_view& rest, std::string& out) {
  const char first = rest.front();
  const size_t end = first == '`' ? rest.find('`', 1) : rest.find("](", 1);
  if ((first != '`' && first != '[') || end == absl::string_view::npos) {
    return false;
  }
  const absl::string_view text = rest.substr(1, end - 1);
  if (first == '`') {
    absl::StrAppend(&out, "<code>", HtmlEscaped(text), "</code>");
    rest.remove_prefix(end + 1);
    return true;
  }
  const size_t close = rest.find(')', end);
  if (close == absl::string_view::npos) {
    return false;
  }
  const absl::string_view to = rest.substr(end + 2, close - end - 2);
  if (absl::StartsWith(to, "https://") || absl::StartsWith(to, "#")) {
    absl::StrAppend(&out, "<a href=\"", HtmlEscaped(to), "\">", HtmlEscaped(text), "</a>");
  } else {
    out += HtmlEscaped(text);
  }
  rest.remove_prefix(close + 1);
  return true;
}

std::string Inline(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (!TakeMark(text, out)) {
      out += HtmlEscaped(text.substr(0, 1));
      text.remove_prefix(1);
    }
  }
  return out;
}

// A block between two lines of ``` without empty lines in it; else nothing.
std::optional<absl::string_view> Fenced(absl::string_view text) {
  const size_t first_end = text.find('\n');
  if (first_end == absl::string_view::npos || !absl::ConsumeSuffix(&text, "\n```") ||
      !absl::StartsWith(text, "```")) {
    return std::nullopt;
  }
  return first_end < text.size() ? text.substr(first_end + 1) : absl::string_view();
}

}  // namespace

std::string RunbookHtml(std::string_view markdown) {
  std::string body;
  const absl::string_view whole(markdown.data(), markdown.size());
  for (const absl::string_view block : absl::StrSplit(whole, "\n\n")) {
    const absl::string_view text = absl::StripAsciiWhitespace(block);
    const size_t level = text.find_first_not_of('#');
    if (text.empty() || level == absl::string_view::npos) {
      continue;
    }
    if (const std::optional<absl::string_view> code = Fenced(text)) {
      absl::StrAppend(&body, "<pre><code>", HtmlEscaped(*code), "</code></pre>\n");
      continue;
    }
    if (level == 0) {
      absl::StrAppend(&body, "<p>", Inline(text), "</p>\n");
      continue;
    }
    const absl::string_view heading = absl::StripAsciiWhitespace(text.substr(level));
    absl::StrAppend(&body, "<h", level, " id=\"", Anchor(heading), "\">", Inline(heading), "</h",
                    level, ">\n");
  }
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Hearth: runbook</title>\n<link rel=\"stylesheet\" href=\"/style.css\">\n</head>\n"
      "<body>\n<main>\n",
      body, "</main>\n<p><a href=\"/\">Jobs and workers</a></p>\n</body>\n</html>\n");
}

}  // namespace hearth::coordinator
