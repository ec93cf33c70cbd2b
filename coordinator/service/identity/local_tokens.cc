#include "coordinator/service/identity/local_tokens.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"
#include "common/io/home.h"
#include "common/io/private_files.h"
#include "common/log/log.h"
#include "common/rpc/bearer.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kSecretBytes = 32;

// The name of the account that this process runs under.
std::string AccountName() {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr && ValidateUserName(found->pw_name).ok()) {
    return found->pw_name;
  }
  return absl::StrCat("uid-", geteuid());
}

// A secret that somebody else put there would let them in.
absl::Status CheckOurs(const std::string& path, mode_t kind) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, path);
  }
  if ((info.st_mode & S_IFMT) != kind || info.st_uid != geteuid() ||
      (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, " is not a ", kind == S_IFDIR ? "folder" : "file",
        " of this account that only it can write; remove it, and the next start makes it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LoadOrMake(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  HEARTH_RETURN_IF_ERROR(CreatePrivateDir(Env::Real(), folder));
  HEARTH_RETURN_IF_ERROR(CheckOurs(folder, S_IFDIR));
  if (Env::Real().Exists(path)) {
    HEARTH_RETURN_IF_ERROR(CheckOurs(path, S_IFREG));
    return rpc::ReadToken(path);
  }
  const std::string secret = absl::StrCat("hearth_local_", RandomHex(kSecretBytes));
  HEARTH_RETURN_IF_ERROR(WritePrivateFile(path, secret + "\n"));
  return secret;
}

}  // namespace

absl::Status AllowLocalTokens(int port, Gate& gate) {
  const std::string home = HearthHome();
  if (home.empty()) {
    HEARTH_LOG_WARNING(
        "neither HEARTH_HOME nor HOME is set: there is no token for this machine's own account");
    return absl::OkStatus();
  }
  v1::Caller caller;
  caller.set_token("local");
  caller.set_user(AccountName());
  caller.set_role(v1::ROLE_ADMIN);
  for (const rpc::LocalToken kind : {rpc::LocalToken::kAdmin, rpc::LocalToken::kWorker}) {
    const std::string path = rpc::LocalTokenPath(home, port, kind);
    const absl::StatusOr<std::string> secret = LoadOrMake(path);
    if (!secret.ok()) {
      return Annotate(secret.status(), "the token of this machine's own account");
    }
    gate.AllowLocal(*secret, caller);
    caller.set_user("");
    caller.set_role(v1::ROLE_WORKER);
  }
  return absl::OkStatus();
}

}  // namespace hearth::coordinator
