// TCP sockets of a rank: listening, dialling, names for error texts. IPv4 and IPv6.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace hearth::trainer {

// A socket, closed by the destructor. -1 = none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(other.Release()) {}
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct Listener {
  Socket socket;        // does not block
  std::string address;  // "10.0.0.1 41237", for Dial
};

// On a port that the system chooses. kInvalidArgument: `host` is not a name or address of this
// machine.
absl::StatusOr<Listener> Listen(const std::string& host);

// Starts to connect; writable when it is done (ConnectError) or has failed. `address`: as of a
// Listener. kUnavailable: it failed at once; kInvalidArgument: no address.
absl::StatusOr<Socket> Dial(const std::string& address);
// Whether the connection that Dial started is there. kUnavailable.
absl::Status ConnectError(const Socket& socket);

// "10.0.0.7:51234"; "?" if it is gone.
std::string PeerName(const Socket& socket);

}  // namespace hearth::trainer
