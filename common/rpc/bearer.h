// Bearer tokens as callers find and send them (docs/security.md).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/rpc/security.h"
#include "grpcpp/client_context.h"

namespace hearth::rpc {

// Keys of a call's metadata.
inline constexpr const char* kAuthorizationKey = "authorization";  // "Bearer TOKEN"
inline constexpr const char* kActAsKey = "hearth-as";              // the user to act as

// What a client sends with each call.
struct Credentials {
  std::string token;   // empty = none
  std::string act_as;  // empty = the token's own user
};

enum class LocalToken { kAdmin, kWorker };

// The file in which the coordinator that listens on `port` of this machine leaves a token for its
// own account: <home>/tokens/local-PORT, or local-PORT-worker. Mode 0600.
std::string LocalTokenPath(std::string_view home, int port, LocalToken kind);

// The token in a file: its first line. Errors as ReadPrivateFile; kInvalidArgument: no token in it.
absl::StatusOr<std::string> ReadToken(const std::string& path);

// The token for the coordinator at `address` ("host:port"): of `token_file` if one is given, else,
// when the address is of loopback, of the local file of that port if there is one, else none ("").
// Errors as ReadToken.
absl::StatusOr<std::string> FindToken(std::string_view address,
                                      const std::string& token_file,
                                      LocalToken kind);

// kInvalidArgument when a token would travel in clear text: `address` is not of loopback, there is
// no TLS, and the user did not say `insecure`.
absl::Status CheckTokenStaysSecret(std::string_view address,
                                   const Credentials& credentials,
                                   bool tls,
                                   bool insecure);

// Adds the metadata; to be called before the call starts.
void Authorize(grpc::ClientContext& context, const Credentials& credentials);

}  // namespace hearth::rpc
