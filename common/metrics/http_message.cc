#include "common/metrics/http_message.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hearth::metrics {
namespace {

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "OK" : (status < 500 ? "Bad Request" : "Internal Server Error");
  }
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// False for a '%' without two digits, and for a control character.
bool DecodePath(absl::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return false;
      }
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return false;
    }
    out.push_back(c);
  }
  return true;
}

ParsedHead Bad() {
  ParsedHead head;
  head.state = ParsedHead::State::kBad;
  return head;
}

}  // namespace

ParsedHead ParseHead(std::string_view bytes) {
  const absl::string_view text(bytes.data(), bytes.size());
  const size_t crlf = text.find("\r\n\r\n");
  const size_t end = std::min(crlf, text.find("\n\n"));
  if (end == absl::string_view::npos || end > kHeadBytesMax) {
    return text.size() > kHeadBytesMax ? Bad() : ParsedHead{};
  }
  const absl::string_view line =
      absl::StripTrailingAsciiWhitespace(text.substr(0, text.find('\n')));
  const std::vector<absl::string_view> parts = absl::StrSplit(line, ' ');
  if (parts.size() != 3 || parts[0].empty() || parts[1].substr(0, 1) != "/" ||
      parts[2].substr(0, 7) != "HTTP/1.") {
    return Bad();
  }
  ParsedHead head;
  head.method = std::string(parts[0]);
  const std::pair<absl::string_view, absl::string_view> target =
      absl::StrSplit(parts[1], absl::MaxSplits('?', 1));
  head.request.query = std::string(target.second);
  if (!DecodePath(target.first, head.request.path)) {
    return Bad();
  }
  head.state = ParsedHead::State::kComplete;
  return head;
}

std::string FormatResponse(const HttpResponse& response, bool with_body) {
  std::string extra;
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&extra, "\r\n", name, ": ", value);
  }
  return absl::StrCat("HTTP/1.1 ", response.status, " ", Reason(response.status),
                      "\r\nContent-Type: ", response.content_type,
                      "\r\nContent-Length: ", response.body.size(),
                      response.status == 405 ? "\r\nAllow: GET, HEAD" : "", extra,
                      "\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                      with_body ? response.body : "");
}

}  // namespace hearth::metrics
