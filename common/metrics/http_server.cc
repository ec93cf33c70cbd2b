#include "common/metrics/http_server.h"

#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "CivetServer.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hearth::metrics {
namespace {

// civetweb explains a failed start only through its log callback, on the thread that starts it.
thread_local std::string* t_start_error = nullptr;

int CaptureLog(const mg_connection* /*connection*/, const char* message) {
  if (t_start_error != nullptr) {
    absl::StrAppend(t_start_error, t_start_error->empty() ? "" : "; ", message);
  }
  return 1;
}

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

void Send(mg_connection* connection, const HttpResponse& response, bool with_body) {
  std::string extra;
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&extra, "\r\n", name, ": ", value);
  }
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", Reason(response.status),
      "\r\nContent-Type: ", response.content_type, "\r\nContent-Length: ", response.body.size(),
      response.status == 405 ? "\r\nAllow: GET, HEAD" : "", extra,
      "\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
  mg_write(connection, head.data(), head.size());
  if (with_body && !response.body.empty()) {
    mg_write(connection, response.body.data(), response.body.size());
  }
}

class Router : public CivetHandler {
 public:
  explicit Router(std::map<std::string, HttpHandler> handlers) : handlers_(std::move(handlers)) {}

  bool handleGet(CivetServer* /*server*/, mg_connection* connection) override {
    return Serve(connection, /*with_body=*/true);
  }
  bool handleHead(CivetServer* /*server*/, mg_connection* connection) override {
    return Serve(connection, /*with_body=*/false);
  }
  bool handlePost(CivetServer* /*server*/, mg_connection* c) override { return Refuse(c); }
  bool handlePut(CivetServer* /*server*/, mg_connection* c) override { return Refuse(c); }
  bool handleDelete(CivetServer* /*server*/, mg_connection* c) override { return Refuse(c); }
  bool handleOptions(CivetServer* /*server*/, mg_connection* c) override { return Refuse(c); }
  bool handlePatch(CivetServer* /*server*/, mg_connection* c) override { return Refuse(c); }

 private:
  bool Serve(mg_connection* connection, bool with_body) {
    const mg_request_info* const info = mg_get_request_info(connection);
    const HttpRequest request{info->local_uri == nullptr ? "" : info->local_uri,
                              info->query_string == nullptr ? "" : info->query_string};
    const HttpHandler* const handler = Find(request.path);
    if (handler == nullptr) {
      std::string known = "not found; there is:\n";
      for (const auto& entry : handlers_) {
        absl::StrAppend(&known, entry.first, "\n");
      }
      Send(connection, {404, "text/plain; charset=utf-8", std::move(known)}, with_body);
      return true;
    }
    Send(connection, (*handler)(request), with_body);
    return true;
  }

  // The handler of the path itself, or of the longest "<folder>/*" above it.
  const HttpHandler* Find(std::string path) const {
    auto found = handlers_.find(path);
    while (found == handlers_.end()) {
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) {
        return nullptr;
      }
      path.resize(slash);
      found = handlers_.find(path + "/*");
    }
    return &found->second;
  }

  static bool Refuse(mg_connection* connection) {
    Send(connection, {405, "text/plain; charset=utf-8", "only GET and HEAD\n"}, true);
    return true;
  }

  const std::map<std::string, HttpHandler> handlers_;
};

// "host:port" split at the last colon; IPv6 hosts keep their brackets.
absl::Status SplitAddress(const std::string& address, std::string& host, int& port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("HTTP address \"", address, "\" is not host:port (port 0 to 65535)"));
  }
  host = address.substr(0, colon);
  return absl::OkStatus();
}

// civetweb takes numeric addresses only.
std::string NumericHost(const std::string& host) {
  if (host == "localhost") {
    return "127.0.0.1";
  }
  return host.empty() ? "0.0.0.0" : host;
}

// Connects and hangs up.
void Poke(const std::string& host, int port) {
  char error[256];
  const std::string numeric = NumericHost(host);
  const bool any = numeric == "0.0.0.0" || numeric == "[::]";
  mg_connection* const connection = mg_connect_client(any ? "127.0.0.1" : numeric.c_str(), port,
                                                      /*use_ssl=*/0, error, sizeof(error));
  if (connection != nullptr) {
    mg_close_connection(connection);
  }
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(std::map<std::string, HttpHandler> handlers) : router(std::move(handlers)) {}
  std::string host;
  int port = 0;
  Router router;  // outlives the server, whose threads call it
  std::unique_ptr<CivetServer> server;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, std::map<std::string, HttpHandler> handlers) {
  std::string host;
  int port = 0;
  const absl::Status split = SplitAddress(address, host, port);
  if (!split.ok()) {
    return split;
  }
  const std::vector<std::string> options = {
      "listening_ports",    absl::StrCat(NumericHost(host), ":", port),
      "num_threads",        "4",
      "request_timeout_ms", "10000"};
  auto impl = std::make_unique<Impl>(std::move(handlers));
  CivetCallbacks callbacks;
  callbacks.log_message = CaptureLog;
  std::string why;
  t_start_error = &why;
  try {
    impl->server = std::make_unique<CivetServer>(options, &callbacks);
  } catch (const std::exception& error) {
    t_start_error = nullptr;
    return absl::UnavailableError(absl::StrCat("cannot listen for HTTP on ", address, ": ",
                                               why.empty() ? error.what() : why));
  }
  t_start_error = nullptr;
  const std::vector<int> ports = impl->server->getListeningPorts();
  if (ports.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot listen for HTTP on ", address, ": ", why));
  }
  impl->host = host;
  impl->port = ports[0];
  impl->server->addHandler("**", impl->router);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::StartOnFreePort(
    const std::string& host,
    int first_port,
    int count,
    const std::map<std::string, HttpHandler>& handlers) {
  absl::Status last = absl::InvalidArgumentError("no ports to try");
  for (int port = first_port; port < first_port + count; ++port) {
    absl::StatusOr<std::unique_ptr<HttpServer>> server =
        Start(absl::StrCat(host, ":", port), handlers);
    if (server.ok() || !absl::IsUnavailable(server.status())) {
      return server;
    }
    last = server.status();
  }
  return last;
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// civetweb looks at its stop flag only between connections, or every two seconds; so connections
// are made until it is gone.
HttpServer::~HttpServer() {
  std::atomic<bool> closed{false};
  std::thread waker([this, &closed] {
    while (!closed) {
      Poke(impl_->host, impl_->port);
      absl::SleepFor(absl::Milliseconds(5));
    }
  });
  impl_->server->close();
  closed = true;
  waker.join();
}

int HttpServer::port() const {
  return impl_->port;
}

const std::string& HttpServer::host() const {
  return impl_->host;
}

}  // namespace hearth::metrics
