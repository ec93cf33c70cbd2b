// For tests: a server on loopback that takes HTTP requests down and answers as the test says.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/fd.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"

namespace hearth::coordinator {

class HttpSink {
 public:
  // `answer`: what every request is answered with, status line and all.
  explicit HttpSink(std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
      : answer_(std::move(answer)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    HEARTH_CHECK(bind(listener_.get(), generic, size) == 0 && listen(listener_.get(), 16) == 0 &&
                     getsockname(listener_.get(), generic, &size) == 0,
                 "the sink listens");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HttpSink() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  std::string url(const std::string& path) const {
    return absl::StrCat("http://127.0.0.1:", port_, path);
  }
  // Heads and bodies of what came so far.
  std::vector<std::string> requests() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

 private:
  void Serve() {
    while (true) {
      const Fd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.valid()) {
        return;
      }
      std::string request;
      char buffer[4096];
      ssize_t count = 1;
      while (!Whole(request) && (count = recv(connection.get(), buffer, sizeof(buffer), 0)) > 0) {
        request.append(buffer, static_cast<size_t>(count));
      }
      {
        absl::MutexLock lock(&mu_);
        requests_.push_back(request);
      }
      static_cast<void>(send(connection.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL));
    }
  }

  // Its head and as many bytes as that says.
  static bool Whole(const std::string& request) {
    const size_t end = request.find("\r\n\r\n");
    if (end == std::string::npos) {
      return false;
    }
    const std::string head = absl::AsciiStrToLower(request.substr(0, end));
    const size_t length = head.find("content-length: ");
    const size_t body =
        length == std::string::npos
            ? 0
            : static_cast<size_t>(std::strtoll(head.c_str() + length + 16, nullptr, 10));
    return request.size() >= end + 4 + body;
  }

  const std::string answer_;
  const Fd listener_;
  uint16_t port_ = 0;
  absl::Mutex mu_;
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hearth::coordinator
