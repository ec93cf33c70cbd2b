#include "coordinator/store/backup.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/io/private_files.h"
#include "coordinator/store/check.h"
#include "coordinator/store/data_dir.h"
#include "coordinator/store/positions.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/segment_log.h"
#include "coordinator/store/sqlite.h"

namespace hearth::coordinator {
namespace {

// A running coordinator drops a segment at most every few seconds, and copying takes less.
constexpr int kAttempts = 5;
constexpr size_t kDamageTold = 5;

// The folder that holds `path`.
std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

class Backup {
 public:
  Backup(std::string data_dir,
         const std::string& folder,
         const std::function<bool()>& stopped,
         Env& env)
      : from_(std::move(data_dir)),
        folder_(absl::StripSuffix(folder, "/")),
        partial_(folder_ + ".partial"),
        stopped_(stopped),
        env_(env) {}

  absl::StatusOr<BackupReport> Run() {
    HEARTH_RETURN_IF_ERROR(CheckFolders());
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const absl::Status copied = Copy();
      if (copied.ok()) {
        HEARTH_RETURN_IF_ERROR(CheckStopped());
        HEARTH_RETURN_IF_ERROR(Verify());
        HEARTH_RETURN_IF_ERROR(Show());
        return report_;
      }
      // store.db names a file that the coordinator has removed since: begin with a newer one.
      if (!absl::IsNotFound(copied)) {
        return copied;
      }
    }
    return absl::AbortedError(absl::StrCat("files of ", from_, " were removed during each of ",
                                           kAttempts, " attempts to copy them; try again later"));
  }

 private:
  absl::Status CheckFolders() {
    HEARTH_ASSIGN_OR_RETURN(const FolderState from, LookAtFolder(env_, from_));
    if (!from.has_database) {
      return absl::FailedPreconditionError(
          absl::StrCat(from_, " has no store.db: it is not a data dir of hearth-coordinator"));
    }
    if (!env_.Exists(ParentOf(folder_))) {
      return absl::NotFoundError(absl::StrCat(ParentOf(folder_), " does not exist"));
    }
    const absl::StatusOr<std::vector<std::string>> there = env_.ListDir(folder_);
    if (env_.Exists(folder_) && (!there.ok() || !there->empty())) {
      return absl::AlreadyExistsError(
          absl::StrCat(folder_, " is there and not an empty folder; name a new one"));
    }
    return absl::OkStatus();
  }

  absl::Status Copy() {
    report_ = BackupReport();
    // Left by an attempt before this one, or by a backup that was killed.
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(partial_));
    HEARTH_RETURN_IF_ERROR(CreatePrivateDir(env_, partial_));
    HEARTH_RETURN_IF_ERROR(env_.CreateDirs(partial_ + "/jobs"));
    // The database first: what it says of the files is on the disk already, and stays there.
    const std::string copy = partial_ + "/store.db";
    {
      HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Database> database,
                              Database::OpenReadOnly(from_ + "/store.db"));
      HEARTH_RETURN_IF_ERROR(database->BackupTo(copy));
    }
    HEARTH_RETURN_IF_ERROR(CopyFilesOf(copy));
    HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, env_.FileSize(copy));
    report_.bytes += bytes;
    // A store of the first version has no marker; its first start makes one.
    if (env_.Exists(MarkerPath(from_))) {
      HEARTH_ASSIGN_OR_RETURN(const std::string marker, env_.ReadFile(MarkerPath(from_)));
      HEARTH_RETURN_IF_ERROR(env_.WriteFileAtomically(MarkerPath(partial_), marker));
    }
    HEARTH_RETURN_IF_ERROR(env_.SyncDir(partial_ + "/jobs"));
    return env_.SyncDir(partial_);
  }

  absl::Status CopyFilesOf(const std::string& store) {
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Database> database,
                            Database::OpenReadOnly(store));
    HEARTH_ASSIGN_OR_RETURN(const SchemaInfo schema, ReadSchema(*database));
    HEARTH_RETURN_IF_ERROR(AdmitVersion(schema, from_));
    HEARTH_ASSIGN_OR_RETURN(Statement jobs, database->Prepare("SELECT count(*) FROM jobs"));
    HEARTH_RETURN_IF_ERROR(jobs.Step().status());
    report_.jobs = jobs.ColumnInt(0);
    return ForEachPosition(*database, [this](const std::string& job_id, StreamKind kind,
                                             const SegmentLog::Position& position) {
      HEARTH_RETURN_IF_ERROR(CheckStopped());
      const std::string to = StreamFolder(partial_, job_id, kind);
      HEARTH_RETURN_IF_ERROR(env_.CreateDirs(to));
      HEARTH_ASSIGN_OR_RETURN(
          const int64_t bytes,
          SegmentLog::Copy(env_, StreamFolder(from_, job_id, kind), to, position));
      HEARTH_RETURN_IF_ERROR(env_.SyncDir(partial_ + "/jobs/" + job_id));
      report_.bytes += bytes;
      ++report_.files;
      return absl::OkStatus();
    });
  }

  // A copy that cannot be read back is worth nothing.
  absl::Status Verify() {
    HEARTH_ASSIGN_OR_RETURN(const CheckReport check, CheckDataDir(partial_, env_));
    std::vector<std::string> told = check.damage();
    if (told.empty()) {
      return absl::OkStatus();
    }
    const size_t places = told.size();
    told.resize(std::min(told.size(), kDamageTold));
    return absl::DataLossError(absl::StrCat("the copy has ", places,
                                            " damaged places (run --check on ", from_,
                                            "): ", absl::StrJoin(told, "; ")));
  }

  absl::Status Show() {
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(folder_));  // empty, see CheckFolders
    HEARTH_RETURN_IF_ERROR(env_.Rename(partial_, folder_));
    return env_.SyncDir(ParentOf(folder_));
  }

  // Removes what was copied so far if nobody wants it any more.
  absl::Status CheckStopped() {
    if (stopped_ == nullptr || !stopped_()) {
      return absl::OkStatus();
    }
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(partial_));
    return absl::UnavailableError("the backup was stopped");
  }

  const std::string from_;
  const std::string folder_;
  const std::string partial_;
  const std::function<bool()>& stopped_;
  Env& env_;
  BackupReport report_;
};

}  // namespace

absl::StatusOr<BackupReport> BackupDataDir(const std::string& data_dir,
                                           const std::string& folder,
                                           const std::function<bool()>& stopped,
                                           Env& env) {
  return Backup(data_dir, folder, stopped, env).Run();
}

}  // namespace hearth::coordinator
