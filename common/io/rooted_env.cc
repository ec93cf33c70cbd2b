#include "common/io/rooted_env.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

// Links followed as far as there is something.
std::string Canonical(const std::string& path) {
  std::error_code error;
  const std::string plain = path.substr(0, path.find_last_not_of('/') + 1);
  const fs::path real = fs::weakly_canonical(plain.empty() ? "/" : plain, error);
  return error ? std::string() : real.string();
}

bool IsBelow(const std::string& path, const std::string& root) {
  const fs::path inner = path;
  const fs::path outer = root;
  return !root.empty() &&
         std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

bool IsBelowAny(const std::string& path, const std::vector<std::string>& roots) {
  return std::any_of(roots.begin(), roots.end(),
                     [&path](const std::string& root) { return IsBelow(path, Canonical(root)); });
}

}  // namespace

// An open file or folder without rights, or an entry of an open folder; name() serves as a path
// while it lives.
class RootedEnv::Pinned {
 public:
  Pinned(int fd, std::string entry, std::string path)
      : fd_(fd),
        name_(absl::StrCat("/proc/self/fd/", fd, entry.empty() ? "" : "/", entry)),
        entry_(std::move(entry)),
        path_(std::move(path)) {}
  Pinned(Pinned&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        name_(std::move(other.name_)),
        entry_(std::move(other.entry_)),
        path_(std::move(other.path_)) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  Pinned& operator=(Pinned&&) = delete;
  ~Pinned() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  int fd() const { return fd_; }
  const std::string& name() const { return name_; }
  const std::string& entry() const { return entry_; }

  // The same with the path that the caller knows.
  absl::Status Named(const absl::Status& status) const {
    return status.ok() ? status
                       : absl::Status(status.code(),
                                      absl::StrReplaceAll(status.message(), {{name_, path_}}));
  }
  template <typename T>
  absl::StatusOr<T> Named(absl::StatusOr<T> result) const {
    if (!result.ok()) {
      return Named(result.status());
    }
    return result;
  }

 private:
  int fd_;
  std::string name_;
  std::string entry_;
  std::string path_;
};

// Keeps the folder open, through which `file` may open its file once more.
class RootedEnv::File : public WritableFile {
 public:
  File(Pinned pinned, std::unique_ptr<WritableFile> file)
      : pinned_(std::move(pinned)), file_(std::move(file)) {}

  absl::Status Append(std::string_view data) override { return pinned_.Named(file_->Append(data)); }
  absl::Status Allocate(int64_t bytes) override { return pinned_.Named(file_->Allocate(bytes)); }
  absl::Status WriteAt(int64_t offset, std::string_view data) override {
    return pinned_.Named(file_->WriteAt(offset, data));
  }
  void StartWriteBack() override { file_->StartWriteBack(); }
  absl::Status Sync() override { return pinned_.Named(file_->Sync()); }
  absl::Status Close() override { return pinned_.Named(file_->Close()); }

 private:
  const Pinned pinned_;
  const std::unique_ptr<WritableFile> file_;
};

bool RootedEnv::Allows(const std::string& real, For use) const {
  const bool writable = roots_.write.empty() || IsBelowAny(real, roots_.write);
  if (use == For::kWriting) {
    return writable;
  }
  return roots_.read.empty() || IsBelowAny(real, roots_.read) ||
         (!roots_.write.empty() && writable);
}

absl::Status RootedEnv::Outside(const std::string& path, For use) const {
  const bool reads = use == For::kReading;
  return absl::PermissionDeniedError(absl::StrCat(
      path, " lies outside of the folders that ", roots_.owner, reads ? " reads" : " writes to",
      ": ", absl::StrJoin(reads ? roots_.read : roots_.write, ", "),
      reads ? " (--data-root)" : " (--checkpoint-root)"));
}

absl::StatusOr<RootedEnv::Pinned> RootedEnv::Pin(const std::string& path, For use) const {
  Pinned pinned(open(path.c_str(), O_PATH | O_CLOEXEC), "", path);
  if (pinned.fd() < 0) {
    const int error = errno;
    return Allows(Canonical(path), use) ? absl::ErrnoToStatus(error, absl::StrCat("opening ", path))
                                        : Outside(path, use);
  }
  // What was opened is judged, not its name: a link may change between a look and the opening.
  std::error_code error;
  const std::string real = fs::read_symlink(pinned.name(), error).string();
  if (error || !Allows(real, use)) {
    return Outside(path, use);
  }
  return pinned;
}

absl::StatusOr<RootedEnv::Pinned> RootedEnv::PinEntry(const std::string& path) const {
  const fs::path plain = path.substr(0, path.find_last_not_of('/') + 1);
  const std::string entry = plain.filename().string();
  if (entry.empty() || entry == "." || entry == "..") {
    return absl::InvalidArgumentError(absl::StrCat(path, " names no entry of a folder"));
  }
  const std::string folder = plain.has_parent_path() ? plain.parent_path().string() : ".";
  const int fd = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    return Allows(Canonical(folder), For::kWriting)
               ? absl::ErrnoToStatus(error, absl::StrCat("opening ", path))
               : Outside(path, For::kWriting);
  }
  Pinned pinned(fd, entry, path);
  std::error_code error;
  const std::string real = fs::read_symlink(absl::StrCat("/proc/self/fd/", fd), error).string();
  if (error || !Allows(real, For::kWriting)) {
    return Outside(path, For::kWriting);
  }
  return pinned;
}

absl::StatusOr<RootedEnv::Pinned> RootedEnv::PinFile(const std::string& path) const {
  HEARTH_ASSIGN_OR_RETURN(Pinned pinned, PinEntry(path));
  struct stat found {};
  if (!roots_.write.empty() &&
      fstatat(pinned.fd(), pinned.entry().c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(found.st_mode)) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is a link; ", roots_.owner, " writes only to files"));
  }
  return pinned;
}

absl::StatusOr<std::unique_ptr<WritableFile>> RootedEnv::NewWritableFile(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(Pinned pinned, PinFile(path));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                          pinned.Named(base_.NewWritableFile(pinned.name())));
  return std::unique_ptr<WritableFile>(new File(std::move(pinned), std::move(file)));
}

absl::StatusOr<std::unique_ptr<WritableFile>> RootedEnv::NewAppendableFile(
    const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(Pinned pinned, PinFile(path));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                          pinned.Named(base_.NewAppendableFile(pinned.name())));
  return std::unique_ptr<WritableFile>(new File(std::move(pinned), std::move(file)));
}

absl::StatusOr<std::unique_ptr<MappedFile>> RootedEnv::Map(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const Pinned pinned, Pin(path, For::kReading));
  return pinned.Named(base_.Map(pinned.name()));
}

absl::StatusOr<std::string> RootedEnv::ReadFile(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const Pinned pinned, Pin(path, For::kReading));
  return pinned.Named(base_.ReadFile(pinned.name()));
}

absl::Status RootedEnv::WriteFileAtomically(const std::string& path, std::string_view data) {
  // It replaces a link, as every entry, by the new file.
  HEARTH_ASSIGN_OR_RETURN(const Pinned pinned, PinEntry(path));
  return pinned.Named(base_.WriteFileAtomically(pinned.name(), data));
}

absl::Status RootedEnv::Rename(const std::string& from, const std::string& to) {
  HEARTH_ASSIGN_OR_RETURN(const Pinned source, PinEntry(from));
  HEARTH_ASSIGN_OR_RETURN(const Pinned target, PinEntry(to));
  return source.Named(target.Named(base_.Rename(source.name(), target.name())));
}

absl::Status RootedEnv::SyncDir(const std::string& dir) {
  HEARTH_ASSIGN_OR_RETURN(const Pinned pinned, Pin(dir, For::kWriting));
  return pinned.Named(base_.SyncDir(pinned.name()));
}

absl::Status RootedEnv::CreateDirs(const std::string& dir) {
  // The deepest folder that is there, then what is missing below it.
  fs::path there = dir;
  std::error_code error;
  while (there.has_relative_path() && !fs::exists(there, error)) {
    there = there.parent_path();
  }
  HEARTH_ASSIGN_OR_RETURN(const Pinned pinned,
                          Pin(there.empty() ? "." : there.string(), For::kWriting));
  const fs::path missing = fs::path(dir).lexically_relative(there.empty() ? "." : there);
  return missing.empty() || missing == "."
             ? absl::OkStatus()
             : pinned.Named(base_.CreateDirs(absl::StrCat(pinned.name(), "/", missing.string())));
}

absl::Status RootedEnv::RemoveAll(const std::string& path) {
  const absl::StatusOr<Pinned> pinned = PinEntry(path);
  if (absl::IsNotFound(pinned.status())) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(pinned.status());
  return pinned->Named(base_.RemoveAll(pinned->name()));
}

absl::Status RootedEnv::Truncate(const std::string& path, int64_t size) {
  HEARTH_ASSIGN_OR_RETURN(const Pinned pinned, Pin(path, For::kWriting));
  return pinned.Named(base_.Truncate(pinned.name(), size));
}

absl::StatusOr<int64_t> RootedEnv::FileSize(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const Pinned pinned, Pin(path, For::kReading));
  return pinned.Named(base_.FileSize(pinned.name()));
}

bool RootedEnv::Exists(const std::string& path) {
  const absl::StatusOr<Pinned> pinned = Pin(path, For::kReading);
  return pinned.ok() || !Allows(Canonical(path), For::kReading);
}

bool RootedEnv::IsDirectory(const std::string& path) {
  const absl::StatusOr<Pinned> pinned = Pin(path, For::kReading);
  return pinned.ok() && base_.IsDirectory(pinned->name());
}

absl::StatusOr<std::vector<std::string>> RootedEnv::ListDir(const std::string& dir) {
  HEARTH_ASSIGN_OR_RETURN(const Pinned pinned, Pin(dir, For::kReading));
  return pinned.Named(base_.ListDir(pinned.name()));
}

}  // namespace hearth
