#include "coordinator/http/access.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/security.h"

namespace hearth::coordinator {
namespace {

constexpr const char* kText = "text/plain; charset=utf-8";

// "[::1]:7071" and "localhost:7071" without port and brackets, in lower case.
std::string NameOf(const std::string& host) {
  const size_t colon = host.rfind(':');
  const bool has_port = colon != std::string::npos && host.find(']', colon) == std::string::npos;
  std::string name = absl::AsciiStrToLower(has_port ? host.substr(0, colon) : host);
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  return name;
}

bool IsMetrics(const std::string& path) {
  return path == "/metrics" || absl::StartsWith(path, "/sd/");
}

std::optional<metrics::HttpResponse> CheckHost(const HttpAccessOptions& options,
                                               const metrics::HttpRequest& request) {
  const std::string name = NameOf(request.host);
  const bool known =
      std::any_of(options.hosts.begin(), options.hosts.end(),
                  [&name](const std::string& host) { return absl::AsciiStrToLower(host) == name; });
  if (request.host.empty() || rpc::IsLoopback(name) || known) {
    return std::nullopt;
  }
  return metrics::HttpResponse{
      421, kText, "this server is not known by that name (hearth-coordinator --http-host)\n"};
}

}  // namespace

metrics::HttpGuard MakeHttpGuard(const HttpAccessOptions& options, AdmitReader admit) {
  return [options, admit = std::move(admit)](
             const metrics::HttpRequest& request) -> std::optional<metrics::HttpResponse> {
    const bool open = options.no_auth || (options.open_metrics && IsMetrics(request.path));
    if (request.path == "/healthz") {
      return std::nullopt;
    }
    if (options.loopback) {
      return CheckHost(options, request);
    }
    if (open) {
      return std::nullopt;
    }
    const absl::Status admitted = admit(request);
    if (admitted.ok()) {
      return std::nullopt;
    }
    metrics::HttpResponse refusal{absl::IsPermissionDenied(admitted) ? 403 : 401, kText,
                                  absl::StrCat(admitted.message(), "\n")};
    refusal.headers.emplace_back("WWW-Authenticate",
                                 "Basic realm=\"Hearth: the token is the password\"");
    return refusal;
  };
}

}  // namespace hearth::coordinator
