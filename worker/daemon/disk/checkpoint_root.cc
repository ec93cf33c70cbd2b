#include "worker/daemon/disk/checkpoint_root.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kUuidFile[] = ".hearth-root";
constexpr char kDoomed[] = ".deleted-";
constexpr size_t kNameMax = 255;
// Numbers that a coordinator takes; a folder with a higher one is not ours.
constexpr int64_t kEpochMax = int64_t{1} << 53;
constexpr int64_t kStepMax = int64_t{1} << 40;

// Puts a UUID into `file` unless it is there already. link() is the one call that creates a file
// with its content whole and fails when another daemon was first.
absl::Status CreateUuidFile(const std::string& file, Env& env) {
  const std::string temporary = absl::StrCat(file, ".", RandomHex(8));
  HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(temporary, RandomUuid() + "\n"));
  const int linked = link(temporary.c_str(), file.c_str());
  const int error = errno;
  HEARTH_RETURN_IF_ERROR(env.RemoveAll(temporary));
  if (linked != 0 && error != EEXIST) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot create ", file));
  }
  return env.SyncDir(fs::path(file).parent_path().string());
}

// Number in "e12"; 0 = no epoch's folder.
int64_t EpochOfName(const std::string& name) {
  int64_t epoch = 0;
  return name.size() > 1 && name[0] == 'e' && name[1] >= '1' && name[1] <= '9' &&
                 absl::SimpleAtoi(name.substr(1), &epoch) && epoch <= kEpochMax
             ? epoch
             : 0;
}

// Number in "step-00000012" and in longer names that begin so; 0 = none.
int64_t StepOfName(const std::string& name) {
  const size_t end = name.find_first_not_of("0123456789", std::string_view("step-").size());
  int64_t step = 0;
  return absl::StartsWith(name, "step-") && absl::SimpleAtoi(name.substr(5, end - 5), &step) &&
                 step <= kStepMax
             ? step
             : 0;
}

// As the trainer (step-N, step-N.tmp-X) and Delete() make them.
v1::CheckpointFolderKind KindOfName(const std::string& name) {
  if (absl::StartsWith(name, kDoomed)) {
    return v1::CHECKPOINT_FOLDER_KIND_TEMPORARY;
  }
  if (!absl::StartsWith(name, "step-") || name.size() > kNameMax) {
    return v1::CHECKPOINT_FOLDER_KIND_UNSPECIFIED;
  }
  if (absl::StrContains(name, ".tmp-")) {
    return v1::CHECKPOINT_FOLDER_KIND_TEMPORARY;
  }
  const bool digits = name.find_first_not_of("0123456789", 5) == std::string::npos;
  return digits && name.size() >= 13 ? v1::CHECKPOINT_FOLDER_KIND_COMPLETE
                                     : v1::CHECKPOINT_FOLDER_KIND_UNSPECIFIED;
}

// Names of the folders in `dir`, without symbolic links; empty when it cannot be read. A name with
// characters other than printable ASCII, or longer than any of ours, is not ours; it is left out
// because a coordinator refuses a listing with it.
std::vector<std::string> FoldersIn(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    const std::string name = it->path().filename().string();
    const bool plain = name.size() <= kNameMax && std::all_of(name.begin(), name.end(), [](char c) {
                         return absl::ascii_isgraph(static_cast<unsigned char>(c));
                       });
    if (plain && it->symlink_status(unknown).type() == fs::file_type::directory) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Bytes of all files below `path`, and the time of the last change of any of them or of it.
void Measure(const std::string& path, v1::CheckpointFolder& folder) {
  timespec changed{};
  int64_t bytes = 0;
  const auto look = [&](const std::string& file) {
    struct stat found {};
    if (lstat(file.c_str(), &found) != 0) {
      return;
    }
    bytes += S_ISREG(found.st_mode) ? found.st_size : 0;
    if (std::tie(found.st_mtim.tv_sec, found.st_mtim.tv_nsec) >
        std::tie(changed.tv_sec, changed.tv_nsec)) {
      changed = found.st_mtim;
    }
  };
  look(path);
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    look(it->path().string());
  }
  folder.set_bytes(bytes);
  folder.mutable_change_time()->set_seconds(changed.tv_sec);
  folder.mutable_change_time()->set_nanos(static_cast<int32_t>(changed.tv_nsec));
}

// False: stop the listing here.
bool ListEpoch(const std::string& job_id,
               int64_t epoch,
               const std::string& dir,
               int limit,
               const std::function<bool()>& between,
               v1::CheckpointFolders& out) {
  const auto add = [&](const std::string& name, v1::CheckpointFolderKind kind) {
    if (out.folders_size() >= limit || !between()) {
      return false;
    }
    v1::CheckpointFolder& folder = *out.add_folders();
    folder.set_job_id(job_id);
    folder.set_epoch(epoch);
    folder.set_name(name);
    folder.set_step(StepOfName(name));
    folder.set_kind(kind);
    Measure(name.empty() ? dir : absl::StrCat(dir, "/", name), folder);
    return true;
  };
  std::error_code error;
  if (fs::is_empty(dir, error)) {
    return add("", v1::CHECKPOINT_FOLDER_KIND_EMPTY_EPOCH);
  }
  for (const std::string& name : FoldersIn(dir)) {
    const v1::CheckpointFolderKind kind = KindOfName(name);
    if (kind != v1::CHECKPOINT_FOLDER_KIND_UNSPECIFIED && !add(name, kind)) {
      return false;
    }
  }
  return true;
}

}  // namespace

CheckpointRoot::CheckpointRoot(std::string path, std::string uuid, Env& env)
    : path_(std::move(path)), uuid_(std::move(uuid)), env_(&env) {}

absl::StatusOr<CheckpointRoot> CheckpointRoot::Open(const std::string& path, Env& env) {
  if (absl::Status status = env.CreateDirs(path); !status.ok()) {
    return Annotate(status, "checkpoint root");
  }
  std::error_code error;
  const std::string real = fs::canonical(path, error).string();
  if (error) {
    return absl::InternalError(absl::StrCat("checkpoint root ", path, ": ", error.message()));
  }
  if (access(real.c_str(), W_OK | X_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("checkpoint root ", real, " is not writable"));
  }
  const std::string file = absl::StrCat(real, "/", kUuidFile);
  if (!env.Exists(file)) {
    if (absl::Status status = CreateUuidFile(file, env); !status.ok()) {
      return Annotate(status, "checkpoint root");
    }
  }
  HEARTH_ASSIGN_OR_RETURN(std::string text, env.ReadFile(file));
  absl::StripAsciiWhitespace(&text);
  if (!IsUuid(text)) {
    return absl::DataLossError(absl::StrCat(
        file,
        " holds no UUID; if no other host uses this folder, remove that file and start again"));
  }
  return CheckpointRoot(real, text, env);
}

absl::StatusOr<std::string> CheckpointRoot::EpochDir(const std::string& job_id,
                                                     int64_t epoch) const {
  HEARTH_RETURN_IF_ERROR(ValidateJobId(job_id));
  if (epoch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("epoch ", epoch, "; epochs count from 1"));
  }
  return absl::StrCat(path_, "/", job_id, "/e", epoch);
}

absl::StatusOr<std::string> CheckpointRoot::CheckPath(const std::string& job_id,
                                                      const std::string& path) const {
  HEARTH_RETURN_IF_ERROR(ValidateJobId(job_id));
  const fs::path job_dir = fs::path(path_) / job_id;
  fs::path folder = path;
  if (!folder.empty() && !folder.has_filename()) {
    folder = folder.parent_path();  // a trailing slash
  }
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrCat(path, " is not a folder of job ", job_id, " under ", path_));
  const fs::path inside = folder.lexically_relative(job_dir);
  if (!folder.is_absolute() || folder.lexically_normal() != folder || inside.empty() ||
      *inside.begin() == "..") {
    return refused;
  }
  std::error_code error;
  if (fs::symlink_status(folder, error).type() == fs::file_type::not_found) {
    return std::string();
  }
  // A link on the way could lead out of the root.
  if (fs::canonical(folder, error) != folder || error) {
    return refused;
  }
  return folder.string();
}

absl::Status CheckpointRoot::Remove(const std::string& folder) const {
  // Rename it first, which is atomic: a half-removed folder must not look like a checkpoint.
  const fs::path from = folder;
  const fs::path doomed =
      from.parent_path() / absl::StrCat(kDoomed, from.filename().string(), "-", RandomHex(4));
  HEARTH_RETURN_IF_ERROR(env_->Rename(folder, doomed.string()));
  return env_->RemoveAll(doomed.string());
}

absl::Status CheckpointRoot::Delete(const std::string& job_id, const std::string& path) const {
  HEARTH_ASSIGN_OR_RETURN(const std::string folder, CheckPath(job_id, path));
  if (folder.empty()) {
    return absl::OkStatus();
  }
  if (fs::path(folder) == fs::path(path_) / job_id) {
    return DeleteJob(folder);
  }
  const std::string parent = fs::path(folder).parent_path().string();
  if (fs::path(folder).filename().string().rfind(kDoomed, 0) == 0) {
    HEARTH_RETURN_IF_ERROR(env_->RemoveAll(folder));
  } else {
    HEARTH_RETURN_IF_ERROR(Remove(folder));
  }
  if (EpochOfName(fs::path(parent).filename().string()) > 0) {
    rmdir(parent.c_str());  // unless there is more in it
  }
  return absl::OkStatus();
}

absl::Status CheckpointRoot::DeleteIfEmpty(const std::string& job_id,
                                           const std::string& path) const {
  HEARTH_ASSIGN_OR_RETURN(const std::string folder, CheckPath(job_id, path));
  if (!folder.empty() && rmdir(folder.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST &&
      errno != ENOENT) {
    return absl::ErrnoToStatus(errno, folder);
  }
  return absl::OkStatus();
}

absl::Status CheckpointRoot::DeleteJob(const std::string& job_dir) const {
  for (const std::string& epoch : FoldersIn(job_dir)) {
    if (EpochOfName(epoch) <= 0) {
      continue;
    }
    const std::string epoch_dir = absl::StrCat(job_dir, "/", epoch);
    for (const std::string& name : FoldersIn(epoch_dir)) {
      if (KindOfName(name) != v1::CHECKPOINT_FOLDER_KIND_UNSPECIFIED) {
        HEARTH_RETURN_IF_ERROR(Remove(absl::StrCat(epoch_dir, "/", name)));
      }
    }
    rmdir(epoch_dir.c_str());
  }
  if (rmdir(job_dir.c_str()) != 0 && errno != ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoints are removed, but ", job_dir,
                     " holds files that are no part of one; they stay"));
  }
  return absl::OkStatus();
}

v1::CheckpointFolders CheckpointRoot::List(int limit, const std::function<bool()>& between) const {
  v1::CheckpointFolders out;
  for (const std::string& job_id : FoldersIn(path_)) {
    if (!ValidateJobId(job_id).ok()) {
      continue;
    }
    const std::string job_dir = absl::StrCat(path_, "/", job_id);
    // By number: as names, e10 comes before e9.
    std::map<int64_t, std::string> epochs;
    for (const std::string& name : FoldersIn(job_dir)) {
      if (const int64_t epoch = EpochOfName(name); epoch > 0) {
        epochs[epoch] = absl::StrCat(job_dir, "/", name);
      }
    }
    for (const auto& [epoch, dir] : epochs) {
      if (!ListEpoch(job_id, epoch, dir, limit, between, out)) {
        out.set_truncated(true);
        return out;
      }
    }
  }
  return out;
}

}  // namespace hearth::worker
