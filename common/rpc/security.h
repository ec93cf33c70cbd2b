// TLS and the rule that clear text stays on the machine.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace hearth::rpc {

// Paths of PEM files, as --tls-cert, --tls-key, --tls-ca give them.
struct TlsFiles {
  std::string cert;  // certificate chain of this side
  std::string key;   // its private key
  // The CA to trust. On a server: clients must then present a certificate (mutual TLS).
  std::string ca;

  bool any() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

// No files: clear text. kInvalidArgument: cert without key or the reverse, or a server with only
// a CA; kNotFound, kPermissionDenied: a file cannot be read, or others can read the key
// (CheckPrivateFile).
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files);

// `use_tls` without files trusts the system's roots. Files imply TLS.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& files, bool use_tls);

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};

// "host:port", "1.2.3.4:0", "[::1]:7070". kInvalidArgument: no port, port not in 0..65535, bare
// IPv6.
absl::StatusOr<HostPort> ParseHostPort(std::string_view address);

// 127.0.0.0/8, ::1, "localhost". Other hostnames are not resolved and count as non-loopback.
bool IsLoopback(std::string_view host);

// kInvalidArgument when `address` is malformed, or non-loopback without `tls` and without
// `insecure`; the text says what to do.
absl::Status CheckListenAddress(std::string_view address, bool tls, bool insecure);

}  // namespace hearth::rpc
