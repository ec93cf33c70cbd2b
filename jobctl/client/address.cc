#include "jobctl/client/address.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/rpc/channel.h"

namespace hearth::jobctl {
namespace {

constexpr int kWebPort = 7071;  // the default of hearth-coordinator --http

bool IsThisMachine(std::string_view host) {
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

}  // namespace

std::string CleanAddresses(std::string_view addresses) {
  std::vector<std::string> cleaned;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(addresses.data(), addresses.size()), ',')) {
    std::string address(absl::StripAsciiWhitespace(part));
    if (const size_t scheme = address.find("://"); scheme != std::string::npos) {
      address = address.substr(scheme + 3);
      address = address.substr(0, address.find('/'));
    }
    cleaned.push_back(address);
  }
  return absl::StrJoin(cleaned, ",");
}

std::string WhenUnreachable(std::string_view address, std::string_view error) {
  const size_t colon = address.rfind(':');
  const std::string host(address.substr(0, colon));
  const std::string port(colon == std::string_view::npos ? "" : address.substr(colon + 1));
  const std::string address_text(address);
  if (port == absl::StrCat(kWebPort)) {
    return absl::StrCat(kWebPort, " is the web port; gRPC is ", rpc::kDefaultPort,
                        ": --coordinator ", host, ":", rpc::kDefaultPort);
  }
  // Two things that gRPC says of a server that speaks HTTP/1.
  if (error.find("http1.x") != std::string_view::npos ||
      error.find("Failed parsing HTTP/2") != std::string_view::npos) {
    return absl::StrCat(port,
                        " answers, but not as gRPC; it may be the web port of a coordinator, ",
                        "whose gRPC port is ", rpc::kDefaultPort, " by default");
  }
  return IsThisMachine(host)
             ? "scripts/start-node.sh starts one with workers, hearth-coordinator --data-dir DIR "
               "one without workers; --coordinator or HEARTH_COORDINATOR names another"
             : absl::StrCat("on ", host, " hearth-coordinator must run with --listen ",
                            address_text, "; --coordinator or HEARTH_COORDINATOR names another");
}

}  // namespace hearth::jobctl
