#include "common/io/disk.h"

#include <sys/statvfs.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace hearth {

absl::StatusOr<DiskSpace> ReadDiskSpace(std::string path) {
  struct statvfs info {};
  while (statvfs(path.c_str(), &info) != 0) {
    const int error = errno;
    const size_t slash = path.rfind('/');
    if (error != ENOENT || slash == std::string::npos || path == "/") {
      return absl::ErrnoToStatus(error, absl::StrCat("space of ", path));
    }
    path = slash == 0 ? "/" : path.substr(0, slash);
  }
  const auto block = static_cast<int64_t>(info.f_frsize);
  return DiskSpace{static_cast<int64_t>(info.f_bavail) * block,
                   static_cast<int64_t>(info.f_blocks) * block};
}

}  // namespace hearth
