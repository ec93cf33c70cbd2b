#include "common/io/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/fd.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"

namespace hearth {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrnoStatus(int error, std::string_view action, const std::string& path) {
  return absl::Status(CodeOf(error), absl::StrCat(std::string(action), " ", path, ": ",
                                                  std::generic_category().message(error)));
}

int OpenRetrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::Status Append(std::string_view data) override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.write"));
    while (!data.empty()) {
      const ssize_t written = write(fd_.get(), data.data(), data.size());
      if (written < 0) {
        if (errno == EINTR) {
          continue;
        }
        return ErrnoStatus(errno, "writing", path_);
      }
      data.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Allocate(int64_t bytes) override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.allocate"));
    if (bytes > 0 && fallocate(fd_.get(), 0, 0, bytes) != 0) {
      if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
        return ErrnoStatus(errno, "allocating", path_);
      }
      // The size is set all the same, as chunks are written in any order. A full disk shows later
      // then.
      if (ftruncate(fd_.get(), bytes) != 0) {
        return ErrnoStatus(errno, "sizing", path_);
      }
    }
    // A file system without it refuses the open or the first write.
    direct_.Reset(OpenRetrying(path_, O_WRONLY | O_DIRECT));
    is_direct_ = direct_.valid();
    return absl::OkStatus();
  }

  absl::Status WriteAt(int64_t offset, std::string_view data) override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.write"));
    while (!data.empty()) {
      const bool aligned =
          (reinterpret_cast<uintptr_t>(data.data()) | static_cast<uint64_t>(offset) | data.size()) %
              kDirectWriteBytes ==
          0;
      const bool direct = aligned && is_direct_.load();
      const ssize_t written =
          pwrite(direct ? direct_.get() : fd_.get(), data.data(), data.size(), offset);
      if (written < 0) {
        if (direct && (errno == EINVAL || errno == EFAULT)) {
          // The file system takes no direct writes after all: the same bytes go through the page
          // cache.
          is_direct_ = false;
        } else if (errno != EINTR) {
          return ErrnoStatus(errno, "writing", path_);
        }
        continue;
      }
      data.remove_prefix(static_cast<size_t>(written));
      offset += written;
    }
    return absl::OkStatus();
  }

  void StartWriteBack() override { sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE); }

  absl::Status Sync() override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.sync"));
    if (fsync(fd_.get()) != 0) {
      return ErrnoStatus(errno, "syncing", path_);
    }
    return absl::OkStatus();
  }

  absl::Status Close() override {
    direct_.Reset();
    const int fd = fd_.Release();
    // On Linux the descriptor is gone even after EINTR, and a second close could hit another file.
    if (fd >= 0 && close(fd) != 0 && errno != EINTR) {
      return ErrnoStatus(errno, "closing", path_);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  Fd fd_;
  Fd direct_;  // the same file, past the page cache
  std::atomic<bool> is_direct_{false};
};

class PosixMappedFile : public MappedFile {
 public:
  PosixMappedFile(void* base, size_t size) : base_(base), size_(size) {}
  ~PosixMappedFile() override {
    if (base_ != nullptr) {
      munmap(base_, size_);
    }
  }
  absl::Span<const uint8_t> bytes() const override {
    return {static_cast<const uint8_t*>(base_), size_};
  }

 private:
  void* base_;  // null for an empty file, which mmap refuses
  size_t size_;
};

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

class PosixEnv : public Env {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    return Open(path, O_TRUNC);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(
      const std::string& path) override {
    return Open(path, O_APPEND);
  }

  absl::StatusOr<std::unique_ptr<MappedFile>> Map(const std::string& path) override {
    const Fd fd(OpenRetrying(path, O_RDONLY));
    if (fd.get() < 0) {
      return ErrnoStatus(errno, "opening", path);
    }
    HEARTH_ASSIGN_OR_RETURN(const size_t size, RegularFileSize(fd, path));
    if (size == 0) {
      return std::unique_ptr<MappedFile>(new PosixMappedFile(nullptr, 0));
    }
    void* const base = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (base == MAP_FAILED) {
      return ErrnoStatus(errno, "mapping", path);
    }
    return std::unique_ptr<MappedFile>(new PosixMappedFile(base, size));
  }

  // Reads to the end rather than to the size, which /proc does not tell.
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    const Fd fd(OpenRetrying(path, O_RDONLY));
    if (fd.get() < 0) {
      return ErrnoStatus(errno, "opening", path);
    }
    HEARTH_ASSIGN_OR_RETURN(const size_t size, RegularFileSize(fd, path));
    std::string out;
    constexpr size_t kChunk = 1 << 16;
    while (true) {
      const size_t used = out.size();
      out.resize(used + std::max(kChunk, size > used ? size - used + 1 : 0));
      const ssize_t got = read(fd.get(), out.data() + used, out.size() - used);
      const int error = errno;
      out.resize(used + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got == 0) {
        return out;
      }
      if (got < 0 && error != EINTR) {
        return ErrnoStatus(error, "reading", path);
      }
    }
  }

  absl::Status WriteFileAtomically(const std::string& path, std::string_view data) override {
    return WriteFileAtomicallyWith(*this, path, data);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.rename"));
    if (rename(from.c_str(), to.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("renaming ", from, " to"), to);
    }
    return absl::OkStatus();
  }

  absl::Status SyncDir(const std::string& dir) override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.sync_folder"));
    const Fd fd(OpenRetrying(dir, O_RDONLY | O_DIRECTORY));
    if (fd.get() < 0) {
      return ErrnoStatus(errno, "opening", dir);
    }
    // EINVAL: a file system without fsync on folders; its renames need none.
    if (fsync(fd.get()) != 0 && errno != EINVAL) {
      return ErrnoStatus(errno, "syncing", dir);
    }
    return absl::OkStatus();
  }

  absl::Status CreateDirs(const std::string& dir) override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.create_folder"));
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    return error ? ErrnoStatus(error.value(), "creating", dir) : absl::OkStatus();
  }

  absl::Status RemoveAll(const std::string& path) override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.remove"));
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? ErrnoStatus(error.value(), "removing", path) : absl::OkStatus();
  }

  absl::Status Truncate(const std::string& path, int64_t size) override {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.truncate"));
    if (truncate(path.c_str(), size) != 0) {
      return ErrnoStatus(errno, "truncating", path);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> FileSize(const std::string& path) override {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) {
      return ErrnoStatus(errno, "looking at", path);
    }
    return static_cast<int64_t>(info.st_size);
  }

  bool Exists(const std::string& path) override {
    struct stat info {};
    return stat(path.c_str(), &info) == 0;
  }

  bool IsDirectory(const std::string& path) override {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }

  absl::StatusOr<std::vector<std::string>> ListDir(const std::string& dir) override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator it(dir, error);
    const std::filesystem::directory_iterator end;
    while (!error && it != end) {
      names.push_back(it->path().filename().string());
      it.increment(error);
    }
    if (error) {
      return ErrnoStatus(error.value(), "listing", dir);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static absl::StatusOr<std::unique_ptr<WritableFile>> Open(const std::string& path, int flag) {
    HEARTH_RETURN_IF_ERROR(fault::Check("io.open"));
    const int fd = OpenRetrying(path, O_WRONLY | O_CREAT | flag, 0644);
    if (fd < 0) {
      return ErrnoStatus(errno, "opening", path);
    }
    return std::unique_ptr<WritableFile>(new PosixWritableFile(path, fd));
  }

  static absl::StatusOr<size_t> RegularFileSize(const Fd& fd, const std::string& path) {
    struct stat info {};
    if (fstat(fd.get(), &info) != 0) {
      return ErrnoStatus(errno, "looking at", path);
    }
    if (S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is a folder, not a file"));
    }
    return static_cast<size_t>(info.st_size);
  }
};
// Temporary name and rename; with an fsync of the file in between, or without.
absl::Status ReplaceFileWith(Env& env, const std::string& path, std::string_view data, bool sync) {
  // The process id keeps two programs that write the same file from sharing a temporary one.
  const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  const auto write = [&]() -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                            env.NewWritableFile(temporary));
    HEARTH_RETURN_IF_ERROR(file->Append(data));
    if (sync) {
      HEARTH_RETURN_IF_ERROR(file->Sync());
    }
    HEARTH_RETURN_IF_ERROR(file->Close());
    return env.Rename(temporary, path);
  };
  const absl::Status written = write();
  if (!written.ok()) {
    env.RemoveAll(temporary).IgnoreError();  // report the first error, not this one
  }
  return written;
}

}  // namespace

absl::Status WriteFileAtomicallyWith(Env& env, const std::string& path, std::string_view data) {
  // Synced before the rename, or a power cut could leave the new name without its bytes.
  HEARTH_RETURN_IF_ERROR(ReplaceFileWith(env, path, data, /*sync=*/true));
  // Only from here on the rename outlives a power cut.
  return env.SyncDir(ParentOf(path));
}

absl::Status ReplaceFile(Env& env, const std::string& path, std::string_view data) {
  return ReplaceFileWith(env, path, data, /*sync=*/false);
}

Env& Env::Real() {
  static PosixEnv* const env = new PosixEnv;
  return *env;
}

}  // namespace hearth
