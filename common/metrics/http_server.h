// The small HTTP server of the daemons: /metrics, /healthz and whatever else they hand in. GET and
// HEAD only.
//
// One thread of libmicrohttpd accepts, reads requests and writes answers, and waits for no client:
// a request that is not complete within HttpLimits::head, or an answer that is not taken within
// HttpLimits::write, ends its connection. If there are too many connections, the one that has kept
// us waiting longest for its request is closed. Handlers run on other threads; /healthz and
// /metrics each have their own, so that neither clients that never finish nor slow pages delay a
// probe or a scrape.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hearth::metrics {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Sent after Content-Type, Content-Length and X-Content-Type-Options: nosniff. Must have no
  // newlines.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct HttpRequest {
  std::string path;
  std::string query;  // without '?', not decoded
  // Headers as they were sent; "" when there is none.
  std::string host = {};
  std::string authorization = {};
  std::string address = {};  // IP address of the client; "" when it cannot be told
};

// Called on server threads, several at once; must not block for long.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

// Asked before each request, on the server's one thread: it must not block. An answer refuses the
// request; nullopt lets it through.
using HttpGuard = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

struct HttpAccess {
  HttpGuard guard = nullptr;  // null: all may read
  // PEM texts: the server speaks TLS. Both or neither.
  std::string tls_cert = {};
  std::string tls_key = {};
};

struct HttpLimits {
  absl::Duration head = absl::Seconds(5);    // from accept to the end of the request's head
  absl::Duration write = absl::Seconds(30);  // for the whole answer
  size_t connections = 512;
};

class HttpServer {
 public:
  // Listens on "host:port" (port 0: any free one) and serves exact paths, and for a key that ends
  // in "/*" all paths below it that no longer key covers; others get 404. Hosts are numeric,
  // "localhost" or empty (all IPv4 addresses). The loopback rule is the caller's:
  // rpc::CheckListenAddress(address, tls, insecure). kInvalidArgument: bad address; kUnavailable:
  // cannot listen, the text says where and why.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address,
      std::map<std::string, HttpHandler> handlers,
      const HttpLimits& limits = {},
      HttpAccess access = {});

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
