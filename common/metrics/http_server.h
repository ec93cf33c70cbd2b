// The small HTTP server of the daemons: /metrics, /healthz and whatever else they hand in. GET and
// HEAD only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace hearth::metrics {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Besides Content-Type, Content-Length and X-Content-Type-Options: nosniff. No line ends in them.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct HttpRequest {
  std::string path;
  std::string query;  // without '?', not decoded
};

// Called on server threads, several at once; must not block for long.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

// civetweb gives its threads stacks of 100 KiB, out of which the C library takes the static
// thread-local storage of the whole process. A program with large thread_local arrays, its own or a
// library's (libcublasLt), cannot start one.
class HttpServer {
 public:
  // Listens on "host:port" (port 0: any free one) and serves exact paths, and for a key that ends
  // in "/*" all paths below it that no longer key covers; others get 404. Clear
  // text only (Debian's civetweb does not work with OpenSSL 3); the loopback rule is the caller's:
  // rpc::CheckListenAddress(address, false, insecure). kInvalidArgument: bad address; kUnavailable:
  // cannot listen, the text says where and why.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, std::map<std::string, HttpHandler> handlers);

  // Start on the first free port of host:first_port .. first_port + count - 1.
  static absl::StatusOr<std::unique_ptr<HttpServer>> StartOnFreePort(
      const std::string& host,
      int first_port,
      int count,
      const std::map<std::string, HttpHandler>& handlers);

  // Stops accepting and waits for running handlers.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  const std::string& host() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::metrics
