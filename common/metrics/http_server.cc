#include "common/metrics/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics/http_message.h"
#include "common/time/clock.h"

namespace hearth::metrics {
namespace {

// After an answer the client's end is awaited for so long: closing at once, with bytes of the
// client unread, would take the answer from it.
constexpr absl::Duration kLinger = absl::Seconds(1);
// Without a free descriptor accepting rests for so long.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// Connections taken before others are looked at again.
constexpr int kAcceptsMax = 64;
constexpr uint64_t kListenId = 0;
constexpr uint64_t kWakeId = 1;
constexpr uint64_t kFirstConnection = 2;

// Answers that wait for their clients, all together; beyond it the oldest of them go.
constexpr size_t kUnsentBytesMax = 64 << 20;

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

void CloseFd(int& fd) {
  if (fd >= 0) {
    close(fd);
  }
  fd = -1;
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
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int one = 1;
  const bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
                  bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0;
  freeaddrinfo(found);
  if (!ok) {
    why = strerror(errno);
    CloseFd(fd);
  }
  return fd;
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

struct Connection {
  enum class State {
    kReading,   // its request is not complete
    kHandling,  // a handler works on it
    kWriting,   // the answer goes out
    kLingering  // the answer is out; waits for the client to close
  };
  int fd = -1;
  State state = State::kReading;
  absl::Duration deadline;  // of the state; none while handled
  std::string in;
  std::string out;
  size_t written = 0;
};

}  // namespace

struct HttpServer::Impl {
  Impl(std::map<std::string, HttpHandler> its_handlers, const HttpLimits& its_limits)
      : handlers(std::move(its_handlers)), limits(its_limits) {}
  ~Impl();

  absl::Status Open(const std::string& address);
  void Run();

  // The loop's.
  void AcceptSome();
  void MakeRoom();
  void OnEvent(uint64_t id, uint32_t events);
  void Read(uint64_t id, Connection& connection);
  void Dispatch(uint64_t id, Connection& connection);
  void Answer(Connection& connection, std::string answer);
  // False: the connection is to be closed.
  bool Write(uint64_t id, Connection& connection);
  bool Drain(Connection& connection);
  void Watch(uint64_t id, const Connection& connection, int operation);
  void Close(uint64_t id);
  void TakeAnswers();
  void CloseLate();
  int TimeoutMs();
  static absl::Duration Now() { return Clock::Real().Monotonic(); }

  void LimitUnsent();

  // The handlers' threads.
  struct Request {
    uint64_t id = 0;
    ParsedHead head;
  };
  void Handle(Lane lane);
  // Takes the lane's first request and those that ask for the same: one answer serves them all, so
  // that a flood of them costs one.
  std::vector<Request> TakeRequests(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  HttpResponse Call(const HttpRequest& request) const;
  const HttpHandler* Find(std::string path) const;
  void Wake() const;

  const std::map<std::string, HttpHandler> handlers;
  const HttpLimits limits;
  std::string host;
  int port = 0;
  int listen_fd = -1;
  int epoll_fd = -1;
  int wake_fd = -1;
  std::vector<std::thread> threads;

  // Of the loop's thread.
  std::map<uint64_t, Connection> connections;
  uint64_t next_id = kFirstConnection;
  absl::Duration accept_again = absl::ZeroDuration();
  bool accepting = true;

  absl::Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  std::array<std::deque<Request>, kLanes> lanes ABSL_GUARDED_BY(mu);
  std::vector<std::pair<uint64_t, std::string>> answers ABSL_GUARDED_BY(mu);
};

absl::Status HttpServer::Impl::Open(const std::string& address) {
  const absl::Status split = SplitAddress(address, host, port);
  if (!split.ok()) {
    return split;
  }
  std::string why;
  listen_fd = Listen(host, port, why);
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listen_fd < 0 || epoll_fd < 0 || wake_fd < 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen for HTTP on ", address, ": ",
                                               why.empty() ? strerror(errno) : why));
  }
  port = PortOf(listen_fd);
  for (const auto& [fd, id] : {std::pair(listen_fd, kListenId), std::pair(wake_fd, kWakeId)}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
  }
  threads.emplace_back([this] {
    pthread_setname_np(pthread_self(), "http");
    Run();
  });
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

HttpServer::Impl::~Impl() {
  {
    absl::MutexLock lock(&mu);
    stopping = true;
  }
  if (wake_fd >= 0) {
    Wake();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (auto& [id, connection] : connections) {
    CloseFd(connection.fd);
  }
  CloseFd(listen_fd);
  CloseFd(epoll_fd);
  CloseFd(wake_fd);
}

void HttpServer::Impl::Wake() const {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_fd, &one, sizeof(one)));
}

void HttpServer::Impl::Run() {
  std::array<epoll_event, 64> events{};
  while (true) {
    {
      absl::MutexLock lock(&mu);
      if (stopping) {
        return;
      }
    }
    const int count =
        epoll_wait(epoll_fd, events.data(), static_cast<int>(events.size()), TimeoutMs());
    for (int i = 0; i < count; ++i) {
      OnEvent(events[static_cast<size_t>(i)].data.u64, events[static_cast<size_t>(i)].events);
    }
    TakeAnswers();
    CloseLate();
  }
}

// Until the next deadline.
int HttpServer::Impl::TimeoutMs() {
  absl::Duration wait = absl::Seconds(60);
  const absl::Duration now = Now();
  for (const auto& [id, connection] : connections) {
    if (connection.state != Connection::State::kHandling) {
      wait = std::min(wait, connection.deadline - now);
    }
  }
  if (!accepting) {
    wait = std::min(wait, accept_again - now);
  }
  return static_cast<int>(absl::ToInt64Milliseconds(std::max(wait, absl::ZeroDuration()))) + 1;
}

void HttpServer::Impl::OnEvent(uint64_t id, uint32_t events) {
  if (id == kListenId) {
    AcceptSome();
    return;
  }
  if (id == kWakeId) {
    uint64_t value = 0;
    static_cast<void>(!read(wake_fd, &value, sizeof(value)));
    return;
  }
  const auto found = connections.find(id);
  if (found == connections.end()) {
    return;  // closed by an event before this one
  }
  Connection& connection = found->second;
  switch (connection.state) {
    case Connection::State::kReading:
      Read(id, connection);
      break;
    case Connection::State::kWriting:
      if (!Write(id, connection)) {
        Close(id);
      }
      break;
    case Connection::State::kLingering:
      if (!Drain(connection)) {
        Close(id);
      }
      break;
    case Connection::State::kHandling:
      if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
        Close(id);  // the client is gone; the answer will find nobody
      }
      break;
  }
}

void HttpServer::Impl::AcceptSome() {
  // Not all at once: those who are in want to be served beside a flood of new ones.
  for (int i = 0; i < kAcceptsMax; ++i) {
    const int fd = accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) {
        continue;
      }
      if (errno != EAGAIN && errno != EWOULDBLOCK) {  // no descriptor, no memory
        MakeRoom();
        accepting = false;
        accept_again = Now() + kAcceptPause;
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, listen_fd, nullptr);
      }
      return;
    }
    if (connections.size() >= limits.connections) {
      MakeRoom();
    }
    const uint64_t id = next_id++;
    Connection& connection = connections[id];
    connection.fd = fd;
    connection.deadline = Now() + limits.head;
    Watch(id, connection, EPOLL_CTL_ADD);
    // Most requests are there already; read at once, they do not count as waiting.
    Read(id, connection);
  }
}

// Closes the connection that has waited longest in the state that costs its client least. Ids are
// in the order of arrival.
void HttpServer::Impl::MakeRoom() {
  for (const Connection::State state :
       {Connection::State::kLingering, Connection::State::kReading, Connection::State::kWriting,
        Connection::State::kHandling}) {
    const auto oldest =
        std::find_if(connections.begin(), connections.end(),
                     [state](const auto& entry) { return entry.second.state == state; });
    if (oldest != connections.end()) {
      Close(oldest->first);
      return;
    }
  }
}

void HttpServer::Impl::Watch(uint64_t id, const Connection& connection, int operation) {
  epoll_event event{};
  event.data.u64 = id;
  switch (connection.state) {
    case Connection::State::kReading:
    case Connection::State::kLingering:
      event.events = EPOLLIN;
      break;
    case Connection::State::kWriting:
      event.events = EPOLLOUT;
      break;
    case Connection::State::kHandling:
      event.events = 0;  // errors are told always
      break;
  }
  epoll_ctl(epoll_fd, operation, connection.fd, &event);
}

void HttpServer::Impl::Read(uint64_t id, Connection& connection) {
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t got = read(connection.fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    }
    if (got <= 0) {
      Close(id);
      return;
    }
    connection.in.append(buffer.data(), static_cast<size_t>(got));
    const ParsedHead head = ParseHead(connection.in);
    if (head.state != ParsedHead::State::kIncomplete) {
      Dispatch(id, connection);
      return;
    }
  }
}

void HttpServer::Impl::Dispatch(uint64_t id, Connection& connection) {
  ParsedHead head = ParseHead(connection.in);
  connection.in.clear();
  const bool known_method = head.method == "GET" || head.method == "HEAD";
  if (head.state == ParsedHead::State::kBad || !known_method) {
    Answer(
        connection,
        FormatResponse(
            head.state == ParsedHead::State::kBad
                ? HttpResponse{400, "text/plain; charset=utf-8", "not a request for this server\n"}
                : HttpResponse{405, "text/plain; charset=utf-8", "only GET and HEAD\n"},
            true));
    Watch(id, connection, EPOLL_CTL_MOD);
    if (!Write(id, connection)) {
      Close(id);
    }
    return;
  }
  connection.state = Connection::State::kHandling;
  Watch(id, connection, EPOLL_CTL_MOD);
  const Lane lane = LaneOf(head.request.path);
  absl::MutexLock lock(&mu);
  lanes[lane].push_back(Request{id, std::move(head)});
}

void HttpServer::Impl::Answer(Connection& connection, std::string answer) {
  connection.state = Connection::State::kWriting;
  connection.deadline = Now() + limits.write;
  connection.out = std::move(answer);
}

bool HttpServer::Impl::Write(uint64_t id, Connection& connection) {
  while (connection.written < connection.out.size()) {
    const ssize_t sent = send(connection.fd, connection.out.data() + connection.written,
                              connection.out.size() - connection.written, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent < 0) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    connection.written += static_cast<size_t>(sent);
  }
  connection.out.clear();
  connection.state = Connection::State::kLingering;
  connection.deadline = Now() + kLinger;
  shutdown(connection.fd, SHUT_WR);
  Watch(id, connection, EPOLL_CTL_MOD);
  return Drain(connection);
}

bool HttpServer::Impl::Drain(Connection& connection) {
  std::array<char, 4096> buffer{};
  // Not for ever: a client that goes on sending is met again by the next event, or by the deadline.
  for (int i = 0; i < 16; ++i) {
    const ssize_t got = read(connection.fd, buffer.data(), buffer.size());
    if (got < 0 && errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    if (got == 0) {
      return false;
    }
  }
  return true;
}

void HttpServer::Impl::Close(uint64_t id) {
  const auto found = connections.find(id);
  if (found == connections.end()) {
    return;
  }
  if (found->second.state == Connection::State::kHandling) {
    absl::MutexLock lock(&mu);
    for (std::deque<Request>& lane : lanes) {
      std::erase_if(lane, [id](const Request& request) { return request.id == id; });
    }
  }
  CloseFd(found->second.fd);  // which takes it out of the epoll set
  connections.erase(found);
}

void HttpServer::Impl::LimitUnsent() {
  size_t unsent = 0;
  for (const auto& [id, connection] : connections) {
    unsent += connection.out.size();
  }
  while (unsent > kUnsentBytesMax) {
    const auto oldest = std::find_if(connections.begin(), connections.end(),
                                     [](const auto& entry) { return !entry.second.out.empty(); });
    unsent -= oldest->second.out.size();
    Close(oldest->first);
  }
}

void HttpServer::Impl::TakeAnswers() {
  std::vector<std::pair<uint64_t, std::string>> ready;
  {
    absl::MutexLock lock(&mu);
    ready.swap(answers);
  }
  for (auto& [id, answer] : ready) {
    const auto found = connections.find(id);
    if (found == connections.end()) {
      continue;  // the client has gone
    }
    Answer(found->second, std::move(answer));
    Watch(id, found->second, EPOLL_CTL_MOD);
    if (!Write(id, found->second)) {
      Close(id);
    }
  }
  LimitUnsent();
}

void HttpServer::Impl::CloseLate() {
  const absl::Duration now = Now();
  if (!accepting && now >= accept_again) {
    accepting = true;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kListenId;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &event);
  }
  std::vector<uint64_t> late;
  for (const auto& [id, connection] : connections) {
    if (connection.state != Connection::State::kHandling && connection.deadline <= now) {
      late.push_back(id);
    }
  }
  for (const uint64_t id : late) {
    Close(id);
  }
}

void HttpServer::Impl::Handle(Lane lane) {
  const auto ready = [this, lane] {
    mu.AssertHeld();
    return stopping || !lanes[lane].empty();
  };
  while (true) {
    std::vector<Request> requests;
    {
      absl::MutexLock lock(&mu);
      mu.Await(absl::Condition(&ready));
      if (stopping) {
        return;
      }
      requests = TakeRequests(lane);
    }
    const HttpResponse response = Call(requests[0].head.request);
    {
      absl::MutexLock lock(&mu);
      for (const Request& request : requests) {
        answers.emplace_back(request.id, FormatResponse(response, request.head.method != "HEAD"));
      }
    }
    Wake();
  }
}

std::vector<HttpServer::Impl::Request> HttpServer::Impl::TakeRequests(Lane lane) {
  std::deque<Request>& queue = lanes[lane];
  std::vector<Request> taken = {std::move(queue.front())};
  queue.pop_front();
  const HttpRequest first = taken[0].head.request;
  std::deque<Request> others;
  for (Request& request : queue) {
    const bool same = request.head.request.path == first.path &&
                      (lane != kOtherLane || request.head.request.query == first.query);
    same ? taken.push_back(std::move(request)) : others.push_back(std::move(request));
  }
  queue.swap(others);
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
    const HttpLimits& limits) {
  auto impl = std::make_unique<Impl>(std::move(handlers), limits);
  const absl::Status opened = impl->Open(address);
  if (!opened.ok()) {
    return opened;
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
