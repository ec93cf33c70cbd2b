// TCP sockets of a rank: listening, dialling, names for error texts. IPv4 and IPv6.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/fd.h"

namespace hearth::trainer {

using Socket = Fd;

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
