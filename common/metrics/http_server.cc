#include "common/metrics/http_server.h"

#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/system.h"
#include "common/metrics/http_connections.h"

namespace hearth::metrics {
namespace {

using Waits = HttpConnections::Waits;

// A request's head is at most about this long; libmicrohttpd refuses a longer one with 431.
constexpr size_t kConnectionBytes = 16 << 10;
// Connections that the library accepts beyond HttpLimits::connections, so that a new one can make
// us close an old one.
constexpr size_t kSpareConnections = 64;

// Queues of requests, with threads of their own.
enum Lane { kHealthLane, kMetricsLane, kOtherLane, kLanes };
constexpr int kThreadsOfLane[kLanes] = {1, 1, 2};

Lane LaneOf(const std::string& path) {
  if (path == "/healthz") {
    return kHealthLane;
  }
  return path == "/metrics" ? kMetricsLane : kOtherLane;
}

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

std::string NumericHost(const std::string& host) {
  if (host == "localhost") {
    return "127.0.0.1";
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    return host.substr(1, host.size() - 2);
  }
  return host.empty() ? "0.0.0.0" : host;
}

// A listening socket, or -1 and `why`.
int Listen(const std::string& host, int port, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(NumericHost(host).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    why = gai_strerror(error);
    return -1;
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int one = 1;
  const bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
                  bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0;
  if (!ok) {
    why = ErrnoText(errno);
  }
  freeaddrinfo(found);
  if (!ok && fd >= 0) {
    close(fd);
  }
  return ok ? fd : -1;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return 0;
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// An answer in the library's form; several requests may share one.
struct Answer {
  unsigned int status = 0;
  size_t bytes = 0;
  std::shared_ptr<MHD_Response> response;
};

Answer MakeAnswer(const HttpResponse& response) {
  MHD_Response* const made = MHD_create_response_from_buffer(
      response.body.size(), const_cast<char*>(response.body.data()), MHD_RESPMEM_MUST_COPY);
  MHD_add_response_header(made, "Content-Type", response.content_type.c_str());
  for (const auto& [name, value] : response.headers) {
    MHD_add_response_header(made, name.c_str(), value.c_str());
  }
  if (response.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
    MHD_add_response_header(made, "Allow", "GET, HEAD");
  }
  MHD_add_response_header(made, "X-Content-Type-Options", "nosniff");
  MHD_add_response_header(made, "Connection", "close");
  return {static_cast<unsigned int>(response.status),
          response.body.size(),
          {made, MHD_destroy_response}};
}

bool HasControlCharacter(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

// One request, from its first line to its answer's last byte. Owned by the library's connection.
struct Exchange {
  MHD_Connection* connection = nullptr;
  HttpRequest request;
  Answer answer;  // set by a handler's thread while the connection is suspended
};

std::string Header(MHD_Connection* connection, const char* name) {
  const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

std::string ClientAddress(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  if (info == nullptr || info->client_addr == nullptr) {
    return "";
  }
  const sockaddr* const address = info->client_addr;
  const socklen_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  char text[NI_MAXHOST];
  return getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text
                                                                                         : "";
}

uintptr_t IdOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info == nullptr ? 0 : reinterpret_cast<uintptr_t>(info->socket_context);
}

}  // namespace

struct HttpServer::Impl {
  Impl(std::map<std::string, HttpHandler> its_handlers,
       const HttpLimits& limits,
       HttpAccess its_access)
      : handlers(std::move(its_handlers)),
        access(std::move(its_access)),
        max_connections(limits.connections),
        open(limits) {}
  ~Impl();

  absl::Status Start(const std::string& address);
  void StartLibrary(int fd, std::string& why);

  // Callbacks of the library, on its one thread.
  static void* OnUri(void* impl, const char* uri, MHD_Connection* connection);
  static MHD_Result OnRequest(void* impl,
                              MHD_Connection* connection,
                              const char* url,
                              const char* method,
                              const char* version,
                              const char* upload,
                              size_t* upload_size,
                              void** exchange);
  static void OnCompleted(void* impl,
                          MHD_Connection* connection,
                          void** exchange,
                          MHD_RequestTerminationCode code);
  static void OnConnection(void* impl,
                           MHD_Connection* connection,
                           void** id,
                           MHD_ConnectionNotificationCode code);
  MHD_Result Send(MHD_Connection* connection, const Answer& answer);
  // False when the server is stopping.
  bool Suspend(Exchange* exchange) ABSL_LOCKS_EXCLUDED(mu);

  // The handlers' threads.
  void Handle(Lane lane) ABSL_LOCKS_EXCLUDED(mu);
  // Takes the lane's first request and all others for the same path and query: one answer serves
  // them all, so a flood of them costs one.
  std::vector<Exchange*> TakeRequests(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  HttpResponse Call(const HttpRequest& request) const;
  const HttpHandler* Find(std::string path) const;

  const std::map<std::string, HttpHandler> handlers;
  const HttpAccess access;
  const size_t max_connections;
  std::string host;
  int port = 0;
  HttpConnections open;
  std::vector<std::thread> threads;
  MHD_Daemon* daemon = nullptr;

  absl::Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  std::array<std::deque<Exchange*>, kLanes> lanes ABSL_GUARDED_BY(mu);
};

absl::Status HttpServer::Impl::Start(const std::string& address) {
  const absl::Status split = SplitAddress(address, host, port);
  if (!split.ok()) {
    return split;
  }
  std::string why;
  const int fd = Listen(host, port, why);
  if (fd >= 0) {
    port = PortOf(fd);
    StartLibrary(fd, why);
  }
  if (daemon == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen for HTTP on ", address, ": ", why));
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < kThreadsOfLane[lane]; ++i) {
      threads.emplace_back([this, lane] {
        pthread_setname_np(pthread_self(), "http-handler");
        Handle(static_cast<Lane>(lane));
      });
    }
  }
  return absl::OkStatus();
}

// Takes the listening socket; leaves `daemon` null, and says why, when the library refuses.
void HttpServer::Impl::StartLibrary(int fd, std::string& why) {
  const bool tls = !access.tls_cert.empty();
  const MHD_OptionItem tls_options[] = {
      {MHD_OPTION_HTTPS_MEM_CERT, 0, const_cast<char*>(access.tls_cert.c_str())},
      {MHD_OPTION_HTTPS_MEM_KEY, 0, const_cast<char*>(access.tls_key.c_str())},
      {MHD_OPTION_END, 0, nullptr}};
  const MHD_OptionItem no_options[] = {{MHD_OPTION_END, 0, nullptr}};
  unsigned int flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
  if (tls) {
    flags |= MHD_USE_TLS;
  }
  daemon = MHD_start_daemon(
      flags, 0, nullptr, nullptr, &OnRequest, this, MHD_OPTION_LISTEN_SOCKET, fd,
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned int>(max_connections + kSpareConnections),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, MHD_OPTION_URI_LOG_CALLBACK, &OnUri,
      this, MHD_OPTION_NOTIFY_COMPLETED, &OnCompleted, this, MHD_OPTION_NOTIFY_CONNECTION,
      &OnConnection, this, MHD_OPTION_ARRAY, tls ? tls_options : no_options, MHD_OPTION_END);
  if (daemon == nullptr) {
    why = tls ? "the HTTP library does not start: are certificate and key good PEM?"
              : "the HTTP library does not start";
    close(fd);
  }
}

// The library must not be stopped while a connection is suspended: first the handlers' threads
// answer what waits, then it stops.
HttpServer::Impl::~Impl() {
  {
    absl::MutexLock lock(&mu);
    stopping = true;
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (daemon != nullptr) {
    MHD_stop_daemon(daemon);
  }
}

void HttpServer::Impl::OnConnection(void* impl,
                                    MHD_Connection* connection,
                                    void** id,
                                    MHD_ConnectionNotificationCode code) {
  auto* const self = static_cast<Impl*>(impl);
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    self->open.Closed(reinterpret_cast<uintptr_t>(*id));
    return;
  }
  const MHD_ConnectionInfo* const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the library keeps a pointer for us, we a number
  *id = reinterpret_cast<void*>(self->open.Opened(info->connect_fd));
}

// The one place where the library shows the query as it was sent.
void* HttpServer::Impl::OnUri(void* /*impl*/, const char* uri, MHD_Connection* connection) {
  auto exchange = std::make_unique<Exchange>();
  exchange->connection = connection;
  const char* const query = strchr(uri, '?');
  exchange->request.query = query == nullptr ? "" : query + 1;
  return exchange.release();
}

void HttpServer::Impl::OnCompleted(void* /*impl*/,
                                   MHD_Connection* /*connection*/,
                                   void** exchange,
                                   MHD_RequestTerminationCode /*code*/) {
  delete static_cast<Exchange*>(*exchange);
  *exchange = nullptr;
}

// Called when the head is there, and again when a handler's thread has resumed the connection.
MHD_Result HttpServer::Impl::OnRequest(void* impl,
                                       MHD_Connection* connection,
                                       const char* url,
                                       const char* method,
                                       const char* /*version*/,
                                       const char* /*upload*/,
                                       size_t* /*upload_size*/,
                                       void** exchange_slot) {
  auto* const self = static_cast<Impl*>(impl);
  auto* const exchange = static_cast<Exchange*>(*exchange_slot);
  if (exchange->answer.response != nullptr) {
    return self->Send(connection, exchange->answer);
  }
  if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
    return self->Send(connection,
                      MakeAnswer({405, "text/plain; charset=utf-8", "only GET and HEAD\n"}));
  }
  exchange->request.path = url;
  if (url[0] != '/' || HasControlCharacter(exchange->request.path)) {
    return self->Send(connection, MakeAnswer({400, "text/plain; charset=utf-8",
                                              "not a request for this server\n"}));
  }
  if (self->access.guard != nullptr) {
    exchange->request.host = Header(connection, MHD_HTTP_HEADER_HOST);
    exchange->request.authorization = Header(connection, MHD_HTTP_HEADER_AUTHORIZATION);
    exchange->request.address = ClientAddress(connection);
    if (const auto refused = self->access.guard(exchange->request); refused.has_value()) {
      return self->Send(connection, MakeAnswer(*refused));
    }
  }
  self->open.Set(IdOf(connection), Waits::kForHandler);
  if (!self->Suspend(exchange)) {
    return self->Send(connection, MakeAnswer({503, "text/plain; charset=utf-8", "stopping\n"}));
  }
  return MHD_YES;
}

MHD_Result HttpServer::Impl::Send(MHD_Connection* connection, const Answer& answer) {
  open.Set(IdOf(connection), Waits::kForClient, answer.bytes);
  return MHD_queue_response(connection, answer.status, answer.response.get());
}

bool HttpServer::Impl::Suspend(Exchange* exchange) {
  absl::MutexLock lock(&mu);
  if (stopping) {
    return false;
  }
  // Suspended before it is queued: a handler's thread must never resume what still runs.
  MHD_suspend_connection(exchange->connection);
  lanes[LaneOf(exchange->request.path)].push_back(exchange);
  return true;
}

void HttpServer::Impl::Handle(Lane lane) {
  while (true) {
    std::vector<Exchange*> requests;
    {
      absl::MutexLock lock(&mu);
      const auto ready = [this, lane]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
        return stopping || !lanes[lane].empty();
      };
      mu.Await(absl::Condition(&ready));
      // Stopping, and nothing is left to answer: no connection of this lane is suspended any more.
      if (lanes[lane].empty()) {
        return;
      }
      requests = TakeRequests(lane);
    }
    const Answer answer = MakeAnswer(Call(requests[0]->request));
    for (Exchange* const exchange : requests) {
      exchange->answer = answer;
      // From here on the exchange is the library's.
      MHD_resume_connection(exchange->connection);
    }
  }
}

std::vector<Exchange*> HttpServer::Impl::TakeRequests(Lane lane) {
  std::deque<Exchange*>& queue = lanes[lane];
  const HttpRequest& first = queue.front()->request;
  // Handlers of the first two lanes do not read the query, so it makes no difference there.
  const auto others =
      std::stable_partition(queue.begin(), queue.end(), [&first, lane](const Exchange* exchange) {
        return exchange->request.path == first.path &&
               (lane != kOtherLane || exchange->request.query == first.query);
      });
  std::vector<Exchange*> taken(queue.begin(), others);
  queue.erase(queue.begin(), others);
  return taken;
}

HttpResponse HttpServer::Impl::Call(const HttpRequest& request) const {
  const HttpHandler* const handler = Find(request.path);
  if (handler != nullptr) {
    return (*handler)(request);
  }
  std::string known = "not found; there is:\n";
  for (const auto& entry : handlers) {
    absl::StrAppend(&known, entry.first, "\n");
  }
  return {404, "text/plain; charset=utf-8", std::move(known)};
}

// The handler of the path itself, or of the longest "<folder>/*" above it.
const HttpHandler* HttpServer::Impl::Find(std::string path) const {
  auto found = handlers.find(path);
  while (found == handlers.end()) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) {
      return nullptr;
    }
    path.resize(slash);
    found = handlers.find(path + "/*");
  }
  return &found->second;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address,
    std::map<std::string, HttpHandler> handlers,
    const HttpLimits& limits,
    HttpAccess access) {
  auto impl = std::make_unique<Impl>(std::move(handlers), limits, std::move(access));
  const absl::Status started = impl->Start(address);
  if (!started.ok()) {
    return started;
  }
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

HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return impl_->port;
}

const std::string& HttpServer::host() const {
  return impl_->host;
}

}  // namespace hearth::metrics
