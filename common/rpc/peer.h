// Where a call comes from.
#pragma once

#include <string>
#include <string_view>

namespace hearth::rpc {

// The IP address in what gRPC calls a peer ("ipv4:10.0.0.1:5000", "ipv6:[fe80::1%25eth0]:5000",
// escaped or not), without port and scope; empty when there is none in it ("unix:...").
std::string AddressOfPeer(std::string_view peer);

// Loopback, or an address of one of this machine's interfaces at the moment.
bool IsOwnAddress(const std::string& address);

}  // namespace hearth::rpc
