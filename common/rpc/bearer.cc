#include "common/rpc/bearer.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"
#include "common/io/home.h"
#include "common/io/private_files.h"

namespace hearth::rpc {

std::string LocalTokenPath(std::string_view home, int port, LocalToken kind) {
  return absl::StrCat(std::string(home), "/tokens/local-", port,
                      kind == LocalToken::kWorker ? "-worker" : "");
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadPrivateFile(path));
  const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 1));
  std::string token(absl::StripAsciiWhitespace(lines.front()));
  for (const char c : token) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      token.clear();  // metadata takes printable characters only
      break;
    }
  }
  if (token.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its first line is no token"));
  }
  return token;
}

absl::StatusOr<std::string> FindToken(std::string_view address,
                                      const std::string& token_file,
                                      LocalToken kind) {
  if (!token_file.empty()) {
    return ReadToken(token_file);
  }
  const std::string home = HearthHome();
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (home.empty() || !parsed.ok() || !IsLoopback(parsed->host)) {
    return "";
  }
  const std::string path = LocalTokenPath(home, parsed->port, kind);
  if (!Env::Real().Exists(path)) {
    return "";
  }
  return ReadToken(path);
}

absl::Status CheckTokenStaysSecret(std::string_view address,
                                   const Credentials& credentials,
                                   bool tls,
                                   bool insecure) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  const bool loopback = parsed.ok() && IsLoopback(parsed->host);
  if (credentials.token.empty() || tls || insecure || loopback) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "refusing to send a token to ", std::string(address),
      " in clear text: anyone on the way could use it. Give --tls-ca, or say --insecure on a "
      "network you trust"));
}

void Authorize(grpc::ClientContext& context, const Credentials& credentials) {
  if (!credentials.token.empty()) {
    context.AddMetadata(kAuthorizationKey, absl::StrCat("Bearer ", credentials.token));
  }
  if (!credentials.act_as.empty()) {
    context.AddMetadata(kActAsKey, credentials.act_as);
  }
}

}  // namespace hearth::rpc
