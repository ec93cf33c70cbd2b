// The files of a deleted job.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/store/positions.h"
#include "coordinator/store/store.h"

namespace hearth::coordinator {

void Store::RemoveJobFiles(const std::string& job_id) {
  for (const StreamKind kind : {StreamKind::kHistory, StreamKind::kLog}) {
    const LogKey key(job_id, kind);
    unflushed_.erase(key);
    flushing_.erase(key);
    LogPtr log;
    {
      absl::MutexLock lock(&mu_);
      const auto found = logs_.find(key);
      if (found != logs_.end()) {
        log = std::move(found->second);
        logs_.erase(found);
      }
    }
    if (log != nullptr) {
      log->Abandon();
    }
  }
  const absl::Status removed = RemoveJobFolder(job_id);
  if (!removed.ok()) {
    // The next Load does not know what stays here, and sets it aside.
    HEARTH_LOG_WARNING("files of deleted job {} stay behind: {}", job_id, removed.ToString());
  }
}

// Removes our files, durably: a job that comes again under this name must not find them
// after a power cut. Foreign files beside them are set aside.
absl::Status Store::RemoveJobFolder(const std::string& job_id) {
  const std::string dir = absl::StrCat(JobsDir(), "/", job_id);
  if (!env_.IsDirectory(dir)) {
    return absl::OkStatus();
  }
  for (const StreamKind kind : {StreamKind::kHistory, StreamKind::kLog}) {
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(StreamFolder(options_.data_dir, job_id, kind)));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> rest, env_.ListDir(dir));
  if (rest.empty()) {
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(dir));
    return env_.SyncDir(JobsDir());
  }
  HEARTH_RETURN_IF_ERROR(quarantine_.Move(dir));
  HEARTH_LOG_WARNING("the folder of deleted job {} held foreign files; it is in {} now", job_id,
                     quarantine_.folder());
  return absl::OkStatus();
}

}  // namespace hearth::coordinator
