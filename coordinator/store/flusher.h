// A thread that moves committed records from memory to segment files, so that no commit waits for
// their syncs. One pass at a time. Between two files it rests four times as long as the last one
// took, so that commits find the disk idle; it does not rest while a thread waits for the pass.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/store/segment_log.h"

namespace hearth::coordinator {

class Flusher {
 public:
  Flusher();
  // Ends after the log that is being written; the rest of the pass is left undone.
  ~Flusher();

  // Begins a pass over `logs`. Call it only after taking the result of the previous pass.
  void Begin(std::vector<std::shared_ptr<SegmentLog>> logs) ABSL_LOCKS_EXCLUDED(mu_);
  // The result of a finished pass, once; nullopt while it runs or when there was none.
  std::optional<absl::Status> TakeResult() ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until the pass is over, which goes at full speed now.
  void Wait() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || busy_; }
  // Rests for `pause`, or less when there is no time for it; false = stopping.
  bool Rest(absl::Duration pause) ABSL_LOCKS_EXCLUDED(mu_);
  bool Hurried() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || waiting_; }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !busy_; }

  absl::Mutex mu_;
  std::vector<std::shared_ptr<SegmentLog>> logs_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;  // somebody is in Wait
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hearth::coordinator
