// The rules of reading over HTTP.
//
// On loopback everyone on this machine may, as long as the request names this machine: a page from
// elsewhere that a browser was made to believe is here ("DNS rebinding") names another. Beyond
// loopback a reader needs a token of the role viewer, as the bearer token or as the password that
// the browser asks for. /healthz is open to all, /metrics and /sd/workers if `open_metrics`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/metrics/http_server.h"

namespace hearth::coordinator {

struct HttpAccessOptions {
  bool loopback = true;
  bool no_auth = false;
  bool open_metrics = false;
  // Further names under which readers may reach the loopback address, without port: a proxy's.
  std::vector<std::string> hosts = {};
};

// Whether the token of a request is one of a reader; as Gate::AdmitReader.
using AdmitReader = std::function<absl::Status(const metrics::HttpRequest&)>;

metrics::HttpGuard MakeHttpGuard(const HttpAccessOptions& options, AdmitReader admit);

}  // namespace hearth::coordinator
