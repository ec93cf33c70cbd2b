// Addresses of coordinators as people write them, and what to try when none answers there. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hearth::jobctl {

// Removes what belongs to a browser: "http://host:7071/jobs, b" becomes "host:7071,b".
std::string CleanAddresses(std::string_view addresses);

// What to do if nothing, or no coordinator, answers at "host:port". `error` is gRPC's text.
std::string WhenUnreachable(std::string_view address, std::string_view error);

}  // namespace hearth::jobctl
