// The little of HTTP/1.1 that a GET-only server needs.
#pragma once

#include <string>
#include <string_view>

#include "common/metrics/http_server.h"

namespace hearth::metrics {

// A request's head is at most so long.
inline constexpr size_t kHeadBytesMax = 8 << 10;

struct ParsedHead {
  enum class State { kIncomplete, kComplete, kBad };
  State state = State::kIncomplete;
  std::string method;
  HttpRequest request;  // path percent-decoded
};

// Of what has been read so far. kBad: no HTTP/1.x request line, a path that does not begin with '/'
// or has control characters, or a head longer than kHeadBytesMax.
ParsedHead ParseHead(std::string_view bytes);

// Status line, headers and, for anything but HEAD, the body. The connection is closed behind it.
std::string FormatResponse(const HttpResponse& response, bool with_body);

}  // namespace hearth::metrics
