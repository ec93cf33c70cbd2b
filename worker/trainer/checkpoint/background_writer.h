// Writes checkpoints on a thread of its own from a snapshot, so that training goes on meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/io/env.h"
#include "common/time/clock.h"
#include "worker/trainer/checkpoint/checkpoint.h"

namespace hearth::trainer {

// At most one checkpoint is being written. The snapshot's memory is taken at the first Submit and
// reused. Used by one thread.
class BackgroundWriter {
 public:
  BackgroundWriter(Env& env, Clock& clock, std::string dir, int32_t keep_last);
  ~BackgroundWriter();  // finishes the write under way, joins

  // Waits for the write before, copies the tensors of `content` and returns; they may then change.
  // `content.table` must outlive the write. The result of the write before, if it was not taken
  // yet, is kept for Take(). Errors: those of content.copy; nothing is written then.
  absl::Status Submit(const CheckpointContent& content);

  // The oldest finished write not yet taken. With `wait`, blocks until the write under way is done
  // first. nullopt: none.
  std::optional<absl::StatusOr<CommittedCheckpoint>> Take(bool wait);

 private:
  void Run();
  absl::Status Snapshot(const CheckpointContent& content);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !busy_; }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return busy_ || stop_; }

  Env& env_;
  Clock& clock_;
  const std::string dir_;
  const int32_t keep_last_;

  absl::Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<absl::StatusOr<CommittedCheckpoint>> done_ ABSL_GUARDED_BY(mu_);
  CheckpointContent content_;      // the writer thread's while busy_
  std::vector<uint8_t> snapshot_;  // likewise
  std::thread thread_;
};

}  // namespace hearth::trainer
