#include "common/io/private_files.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace hearth {

absl::Status CreatePrivateDir(Env& env, const std::string& dir) {
  const bool there = env.Exists(dir);
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(dir));
  if (!there && chmod(dir.c_str(), S_IRWXU) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("chmod ", dir));
  }
  return absl::OkStatus();
}

absl::Status CheckPrivateFile(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, path);
  }
  const mode_t others = info.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;
  if ((info.st_mode & others) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s has mode %04o: others have access to it; chmod 600 %s", path,
                        info.st_mode & 07777, path));
  }
  return absl::OkStatus();
}

}  // namespace hearth
