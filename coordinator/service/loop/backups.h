// Makes copies of the data dir while the coordinator runs, one at a time, on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "coordinator/store/backup_folder.h"

namespace hearth::coordinator {

struct TimedBackup {
  MadeBackup made;
  absl::Duration took;
};

// Thread-safe.
class Backups {
 public:
  Backups(std::string data_dir, BackupFolder folder, Clock& clock);
  // Stop()s.
  ~Backups();

  // `done` is called once: on this object's thread when the copy is made or has failed, or at once
  // with kFailedPrecondition (one is being made) or kUnavailable (stopping).
  using Done = std::function<void(const absl::StatusOr<TimedBackup>&)>;
  void Make(Done done) ABSL_LOCKS_EXCLUDED(mu_);

  // Gives up the copy that is being made, and takes no further ones.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status Begin(Done& done) ABSL_LOCKS_EXCLUDED(mu_);
  void Run(const Done& done) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string data_dir_;
  const BackupFolder folder_;
  Clock& clock_;
  std::atomic<bool> stopping_{false};
  absl::Mutex mu_;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mu_);  // of the last copy
};

}  // namespace hearth::coordinator
