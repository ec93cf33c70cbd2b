#include "common/rpc/security.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"
#include "common/io/private_files.h"

namespace hearth::rpc {
namespace {

// "" for no path.
absl::StatusOr<std::string> ReadPem(std::string_view flag, const std::string& path) {
  if (path.empty()) {
    return std::string();
  }
  absl::StatusOr<std::string> text = Env::Real().ReadFile(path);
  if (!text.ok()) {
    return Annotate(text.status(), flag);
  }
  if (text->find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(flag), " ", path, ": not a PEM file"));
  }
  return text;
}

absl::Status CheckPair(const TlsFiles& files) {
  if (files.cert.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  return files.key.empty() ? absl::OkStatus() : Annotate(CheckPrivateFile(files.key), "--tls-key");
}

absl::Status BadAddress(std::string_view address, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("address \"", std::string(address), "\": ", std::string(why)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files) {
  if (!files.any()) {
    return grpc::InsecureServerCredentials();
  }
  HEARTH_RETURN_IF_ERROR(CheckPair(files));
  if (files.cert.empty()) {
    return absl::InvalidArgumentError("--tls-ca on a server needs --tls-cert and --tls-key");
  }
  grpc::SslServerCredentialsOptions options(
      files.ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                       : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  HEARTH_ASSIGN_OR_RETURN(pair.cert_chain, ReadPem("--tls-cert", files.cert));
  HEARTH_ASSIGN_OR_RETURN(pair.private_key, ReadPem("--tls-key", files.key));
  HEARTH_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem("--tls-ca", files.ca));
  options.pem_key_cert_pairs.push_back(std::move(pair));
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files, bool use_tls) {
  if (!files.any() && !use_tls) {
    return grpc::InsecureChannelCredentials();
  }
  HEARTH_RETURN_IF_ERROR(CheckPair(files));
  grpc::SslCredentialsOptions options;
  HEARTH_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem("--tls-cert", files.cert));
  HEARTH_ASSIGN_OR_RETURN(options.pem_private_key, ReadPem("--tls-key", files.key));
  HEARTH_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem("--tls-ca", files.ca));
  return grpc::SslCredentials(options);
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view address) {
  HostPort out;
  std::string_view port;
  if (!address.empty() && address.front() == '[') {
    const size_t end = address.find(']');
    if (end == std::string_view::npos || end + 1 >= address.size() || address[end + 1] != ':') {
      return BadAddress(address, "IPv6 is written [::1]:7070");
    }
    out.host = std::string(address.substr(1, end - 1));
    port = address.substr(end + 2);
  } else {
    const size_t colon = address.rfind(':');
    if (colon == std::string_view::npos) {
      return BadAddress(address, "expected host:port");
    }
    out.host = std::string(address.substr(0, colon));
    port = address.substr(colon + 1);
    if (out.host.find(':') != std::string::npos) {
      return BadAddress(address, "IPv6 is written [::1]:7070");
    }
  }
  if (out.host.empty()) {
    return BadAddress(address, "the host is missing (0.0.0.0 means all interfaces)");
  }
  if (!absl::SimpleAtoi(absl::string_view(port.data(), port.size()), &out.port) || out.port < 0 ||
      out.port > 65535) {
    return BadAddress(address, "the port must be 0 to 65535");
  }
  return out;
}

bool IsLoopback(std::string_view host) {
  const std::string text(host);
  if (text == "localhost") {
    return true;
  }
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6{};
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::Status CheckListenAddress(std::string_view address, bool tls, bool insecure) {
  HEARTH_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  if (tls || insecure || IsLoopback(parsed.host)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "refusing to listen on ", std::string(address),
      " in clear text: anyone who reaches it could run jobs. Give --tls-cert and --tls-key (and "
      "--tls-ca to ask clients for certificates), listen on 127.0.0.1, or say --insecure on a "
      "network you trust"));
}

}  // namespace hearth::rpc
