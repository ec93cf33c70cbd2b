// A disk that fails when told to. For tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/io/env.h"

namespace hearth {

// Passes everything on to `base` (not owned, outlives this) and counts the operations that change
// the disk: opening for writing, Append, Allocate, WriteAt, Sync, Close, Rename, SyncDir,
// CreateDirs, RemoveAll, Truncate. Reads never fail. WriteFileAtomically is made of these steps, so
// it can fail between any two. Thread-safe; files must not outlive the Env.
class FaultyEnv : public Env {
 public:
  explicit FaultyEnv(Env& base);

  // The n-th changing operation from now (1 = the next) returns `status` and does nothing; later
  // ones work again unless `sticky`. A failing Append or WriteAt writes the first half of its data,
  // as a full disk does.
  void FailAfter(int64_t n, absl::Status status, bool sticky = false);
  // Past `bytes` more bytes an Append writes what fits, an Allocate takes nothing, and both return
  // kResourceExhausted naming the file, until Heal().
  void SetDiskSpace(int64_t bytes);
  // Clears FailAfter and SetDiskSpace.
  void Heal();
  // Changing operations so far; lets a test loop FailAfter over all of them.
  int64_t operations() const;

  // What a power cut does: every file written through this Env is cut to its length at its last
  // Sync (files never synced become empty), and files renamed or created whose folder was not
  // synced since keep their new names (rename is atomic on the journalling file systems we
  // support). Open files fail with kInternal afterwards.
  absl::Status DropUnsynced();

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<MappedFile>> Map(const std::string& path) override {
    return base_.Map(path);
  }
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return base_.ReadFile(path);
  }
  absl::Status WriteFileAtomically(const std::string& path, std::string_view data) override {
    return WriteFileAtomicallyWith(*this, path, data);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDir(const std::string& dir) override;
  absl::Status CreateDirs(const std::string& dir) override;
  absl::Status RemoveAll(const std::string& path) override;
  absl::Status Truncate(const std::string& path, int64_t size) override;
  absl::StatusOr<int64_t> FileSize(const std::string& path) override {
    return base_.FileSize(path);
  }
  bool Exists(const std::string& path) override { return base_.Exists(path); }
  bool IsDirectory(const std::string& path) override { return base_.IsDirectory(path); }
  absl::StatusOr<std::vector<std::string>> ListDir(const std::string& dir) override {
    return base_.ListDir(dir);
  }

 private:
  class File;

  // Counts one operation on `path` and returns the fault due, if any.
  absl::Status Step(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Append(File& file, std::string_view data) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Allocate(File& file, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::unique_ptr<WritableFile>> Open(const std::string& path, bool append);

  Env& base_;
  mutable absl::Mutex mu_;
  int64_t operations_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t fail_at_ ABSL_GUARDED_BY(mu_) = 0;  // 0 = never
  absl::Status fail_status_ ABSL_GUARDED_BY(mu_);
  bool sticky_ ABSL_GUARDED_BY(mu_) = false;
  int64_t space_left_ ABSL_GUARDED_BY(mu_) = -1;  // -1 = unlimited
  int64_t power_cuts_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, int64_t> synced_
      ABSL_GUARDED_BY(mu_);  // durable length of each file written here
};

}  // namespace hearth
