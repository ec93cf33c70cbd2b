#include "common/dataset/build/build_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/fault/fault.h"

namespace hearth::dataset {
namespace {

constexpr char kInsideName[] = ".building";
constexpr char kLockName[] = "hearth-build.lock";
constexpr char kStateName[] = "build.json";

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status IsThere(const std::string& out) {
  return absl::AlreadyExistsError(absl::StrCat(out, ": exists and is not empty"));
}

}  // namespace

std::string BuildFolder::PathFor(const std::string& out, bool has_splits, Env& env) {
  return has_splits && env.Exists(out) ? absl::StrCat(out, "/", kInsideName)
                                       : absl::StrCat(out, ".building");
}

BuildFolder::BuildFolder(std::string out, std::vector<std::string> splits, Env& env)
    : out_(std::move(out)),
      splits_(std::move(splits)),
      path_(PathFor(out_, !splits_.empty(), env)),
      inside_(path_ == absl::StrCat(out_, "/", kInsideName)),
      env_(env) {}

BuildFolder::~BuildFolder() {
  if (lock_ >= 0) {
    // An end in order, by an error too, leaves nothing. Only a killed build leaves its state.
    env_.RemoveAll(path_).IgnoreError();
    close(lock_);
  }
}

absl::StatusOr<std::unique_ptr<BuildFolder>> BuildFolder::Open(const std::string& out,
                                                               std::vector<std::string> splits,
                                                               Env& env) {
  std::unique_ptr<BuildFolder> folder(new BuildFolder(out, std::move(splits), env));
  std::vector<std::string> names;
  if (env.Exists(out)) {
    if (!env.IsDirectory(out)) {
      return absl::AlreadyExistsError(absl::StrCat(out, ": exists"));
    }
    HEARTH_ASSIGN_OR_RETURN(names, env.ListDir(out));
  }
  const bool left_over = env.Exists(folder->path_);
  if (left_over && !env.Exists(absl::StrCat(folder->path_, "/", kLockName))) {
    return absl::AlreadyExistsError(
        absl::StrCat(folder->path_, ": exists and is not what a build left behind"));
  }
  // A killed build may have moved datasets into `out` already; it had saved its state before.
  for (const std::string& name : names) {
    const bool published =
        env.Exists(absl::StrCat(folder->path_, "/", kStateName)) &&
        std::find(folder->splits_.begin(), folder->splits_.end(), name) != folder->splits_.end();
    const bool ours = folder->inside_ && left_over && (name == kInsideName || published);
    if (!ours) {
      return IsThere(out);
    }
  }
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(folder->path_));
  HEARTH_RETURN_IF_ERROR(folder->Lock());
  return folder;
}

absl::Status BuildFolder::Lock() {
  const std::string path = absl::StrCat(path_, "/", kLockName);
  const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": ", ErrnoText(errno)));
  }
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": another process builds this dataset"));
  }
  lock_ = lock;
  return absl::OkStatus();
}

std::string BuildFolder::DataPath(size_t i) const {
  return absl::StrCat(path_, "/data", splits_.empty() ? "" : "/",
                      splits_.empty() ? "" : splits_[i]);
}

std::string BuildFolder::WorkPath(size_t i) const {
  return absl::StrCat(path_, "/work-", i);
}

absl::StatusOr<std::optional<std::string>> BuildFolder::LoadState() {
  const std::string file = absl::StrCat(path_, "/", kStateName);
  if (!env_.Exists(file)) {
    return std::nullopt;
  }
  // A build that was killed while it published had moved its folders: they go back to their work
  // paths, to be finished again.
  for (size_t i = 0; i < std::max<size_t>(splits_.size(), 1); ++i) {
    const std::string published = inside_ ? absl::StrCat(out_, "/", splits_[i]) : "";
    for (const std::string& from : {DataPath(i), published}) {
      if (!from.empty() && env_.Exists(from)) {
        HEARTH_RETURN_IF_ERROR(env_.Rename(from, WorkPath(i)));
      }
    }
  }
  HEARTH_ASSIGN_OR_RETURN(std::string state, env_.ReadFile(file));
  return state;
}

absl::Status BuildFolder::SaveState(std::string_view state) {
  return env_.WriteFileAtomically(absl::StrCat(path_, "/", kStateName), state);
}

absl::Status BuildFolder::Clear() {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.ListDir(path_));
  for (const std::string& name : names) {
    if (name != kLockName) {
      HEARTH_RETURN_IF_ERROR(env_.RemoveAll(absl::StrCat(path_, "/", name)));
    }
  }
  return absl::OkStatus();
}

absl::Status BuildFolder::Publish() {
  HEARTH_RETURN_IF_ERROR(fault::Check("dataset.before_publish"));
  if (inside_) {
    for (size_t i = 0; i < splits_.size(); ++i) {
      HEARTH_RETURN_IF_ERROR(env_.Rename(DataPath(i), absl::StrCat(out_, "/", splits_[i])));
      HEARTH_RETURN_IF_ERROR(fault::Check("dataset.after_split"));
    }
    return env_.SyncDir(out_);
  }
  if (env_.Exists(out_)) {
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(out_));  // empty: Open checked
  }
  HEARTH_RETURN_IF_ERROR(env_.Rename(absl::StrCat(path_, "/data"), out_));
  return env_.SyncDir(ParentOf(out_));
}

}  // namespace hearth::dataset
