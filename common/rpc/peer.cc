#include "common/rpc/peer.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace hearth::rpc {
namespace {

// In the form of inet_ntop; a v4 address mapped into v6 as v4. Empty: neither.
std::string Canonical(const std::string& text) {
  char out[INET6_ADDRSTRLEN] = {};
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return inet_ntop(AF_INET, &v4, out, sizeof(out));
  }
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) {
    return "";
  }
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    return inet_ntop(AF_INET, &v6.s6_addr[12], out, sizeof(out));
  }
  return inet_ntop(AF_INET6, &v6, out, sizeof(out));
}

}  // namespace

std::string AddressOfPeer(std::string_view peer) {
  std::string text = absl::StrReplaceAll(std::string(peer), {{"%5B", "["}, {"%5D", "]"}});
  const bool known = absl::StartsWith(text, "ipv4:") || absl::StartsWith(text, "ipv6:");
  const size_t port = text.rfind(':');
  if (!known || port < 5) {
    return "";
  }
  text = absl::StrReplaceAll(text.substr(5, port - 5), {{"[", ""}, {"]", ""}});
  return Canonical(text.substr(0, text.find('%')));
}

bool IsOwnAddress(const std::string& address) {
  if (absl::StartsWith(address, "127.") || address == "::1") {
    return true;
  }
  ifaddrs* all = nullptr;
  if (address.empty() || getifaddrs(&all) != 0) {
    return false;
  }
  bool own = false;
  for (const ifaddrs* each = all; each != nullptr && !own; each = each->ifa_next) {
    char text[INET6_ADDRSTRLEN] = {};
    const int family = each->ifa_addr == nullptr ? AF_UNSPEC : each->ifa_addr->sa_family;
    const void* bytes = nullptr;
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    if (family == AF_INET) {
      std::memcpy(&v4, each->ifa_addr, sizeof(v4));
      bytes = &v4.sin_addr;
    } else if (family == AF_INET6) {
      std::memcpy(&v6, each->ifa_addr, sizeof(v6));
      bytes = &v6.sin6_addr;
    }
    own = bytes != nullptr && inet_ntop(family, bytes, text, sizeof(text)) != nullptr &&
          address == text;
  }
  freeifaddrs(all);
  return own;
}

}  // namespace hearth::rpc
