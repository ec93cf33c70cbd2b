// Who is at the other end of a call.
#pragma once

#include <string>
#include <string_view>

namespace hearth::rpc {

// The address in a ServerContext's peer(), without the port: "ipv4:10.0.0.7:41522" gives
// "ipv4:10.0.0.7". What has no port is returned as it is.
inline std::string PeerAddress(std::string_view peer) {
  const bool has_port = peer.starts_with("ipv4:") || peer.starts_with("ipv6:");
  return std::string(has_port ? peer.substr(0, peer.rfind(':')) : peer);
}

}  // namespace hearth::rpc
