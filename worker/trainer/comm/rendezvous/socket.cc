#include "worker/trainer/comm/rendezvous/socket.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/fault/fault.h"

namespace hearth::trainer {
namespace {

// Strangers fill it too; the kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 1024;

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<AddressList> Resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(host, ": ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

std::string LastError() {
  return ErrnoText(errno);
}

// Host and port as numbers.
absl::StatusOr<std::pair<std::string, std::string>> NumbersOf(const sockaddr_storage& address,
                                                              socklen_t size) {
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port,
                  sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return absl::UnavailableError("a socket without an address");
  }
  return std::pair<std::string, std::string>(host, port);
}

}  // namespace

absl::StatusOr<Listener> Listen(const std::string& host) {
  HEARTH_RETURN_IF_ERROR(fault::Check("rendezvous.listen"));
  HEARTH_ASSIGN_OR_RETURN(const AddressList found, Resolve(host, "0", AI_PASSIVE));
  std::string error = "no address";
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    Listener made;
    made.socket = Socket(
        socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    if (!made.socket.valid() || bind(made.socket.get(), at->ai_addr, at->ai_addrlen) != 0 ||
        listen(made.socket.get(), kBacklog) != 0) {
      error = LastError();
      continue;
    }
    sockaddr_storage bound = {};
    socklen_t size = sizeof bound;
    if (getsockname(made.socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
      return absl::InternalError(absl::StrCat("getsockname: ", LastError()));
    }
    HEARTH_ASSIGN_OR_RETURN(const auto numbers, NumbersOf(bound, size));
    made.address = absl::StrCat(numbers.first, " ", numbers.second);
    return made;
  }
  return absl::InvalidArgumentError(absl::StrCat(host, ": ", error));
}

absl::StatusOr<Socket> Dial(const std::string& address) {
  HEARTH_RETURN_IF_ERROR(fault::Check("rendezvous.dial"));
  const std::pair<std::string, std::string> numbers =
      absl::StrSplit(address, absl::MaxSplits(' ', 1));
  HEARTH_ASSIGN_OR_RETURN(const AddressList found,
                          Resolve(numbers.first, numbers.second, AI_NUMERICHOST | AI_NUMERICSERV));
  Socket made(socket(found->ai_family, found->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                     found->ai_protocol));
  // After EINTR the connection goes on being made, as after EINPROGRESS.
  if (!made.valid() || (connect(made.get(), found->ai_addr, found->ai_addrlen) != 0 &&
                        errno != EINPROGRESS && errno != EINTR)) {
    return absl::UnavailableError(absl::StrCat("connecting to ", address, ": ", LastError()));
  }
  return made;
}

absl::Status ConnectError(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  return error == 0 ? absl::OkStatus() : absl::UnavailableError(ErrnoText(error));
}

std::string PeerName(const Socket& socket) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof peer;
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return "?";
  }
  const auto numbers = NumbersOf(peer, size);
  if (!numbers.ok()) {
    return "?";
  }
  return absl::StrContains(numbers->first, ':')
             ? absl::StrCat("[", numbers->first, "]:", numbers->second)
             : absl::StrCat(numbers->first, ":", numbers->second);
}

}  // namespace hearth::trainer
