#include "common/io/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"

namespace hearth {
namespace {

absl::Status Failed(const std::string& what) {
  const int error = errno;
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(what + ": disk full")
                                            : absl::ErrnoToStatus(error, what);
}

// Writes all of `data` and syncs it.
absl::Status WriteAll(int fd, const std::string& path, std::string_view data) {
  HEARTH_RETURN_IF_ERROR(fault::Check("io.write"));
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno != EINTR) {
      return Failed(path);
    }
    data.remove_prefix(written > 0 ? static_cast<size_t>(written) : 0);
  }
  HEARTH_RETURN_IF_ERROR(fault::Check("io.sync"));
  return fsync(fd) == 0 ? absl::OkStatus() : Failed(path);
}

}  // namespace

absl::Status WritePrivateFile(const std::string& path, std::string_view data) {
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) {
    return Failed(path);
  }
  absl::Status status = WriteAll(fd, path, data);
  close(fd);
  status.Update(fault::Check("io.rename"));
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = Failed(path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return Env::Real().SyncDir(folder.empty() ? "." : folder);
}

absl::Status CreatePrivateDir(Env& env, const std::string& dir) {
  const bool there = env.Exists(dir);
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(dir));
  // A folder that was there keeps the mode that its owner chose.
  if (!there && chmod(dir.c_str(), S_IRWXU) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("chmod ", dir));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  constexpr size_t kMostBytes = 64 << 10;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, path);
  }
  // What is looked at is what is read: the name may stand for another file by then.
  struct stat info = {};
  std::string text(kMostBytes, 0);
  const bool known = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const ssize_t bytes = known ? pread(fd, text.data(), text.size(), 0) : -1;
  const int error = known ? errno : EINVAL;
  close(fd);
  if (bytes < 0) {
    return absl::ErrnoToStatus(error, path);
  }
  if (info.st_uid != geteuid() && info.st_uid != 0 && geteuid() != 0) {
    return absl::PermissionDeniedError(path + " belongs to another account");
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s has mode %04o: others have access to it; chmod 600 %s", path,
                        info.st_mode & 07777, path));
  }
  text.resize(static_cast<size_t>(bytes));
  return text;
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
