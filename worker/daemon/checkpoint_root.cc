#include "worker/daemon/checkpoint_root.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kUuidFile[] = ".hearth-root";

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

absl::Status CheckpointRoot::Delete(const std::string& job_id, const std::string& path) const {
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
    return absl::OkStatus();
  }
  if (fs::canonical(folder, error) != folder || error) {
    return refused;
  }
  // First out of sight in one step: a half-removed folder must not be taken for a checkpoint.
  const fs::path doomed = folder.parent_path() /
                          absl::StrCat(".deleted-", folder.filename().string(), "-", RandomHex(4));
  HEARTH_RETURN_IF_ERROR(env_->Rename(folder.string(), doomed.string()));
  return env_->RemoveAll(doomed.string());
}

}  // namespace hearth::worker
