// Writes checkpoints on a thread of its own from a snapshot, so that training goes on meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/io/env.h"
#include "common/time/clock.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/checkpoint/snapshot.h"

namespace hearth::trainer {

// At most one checkpoint is being written. Used by one thread.
class BackgroundWriter {
 public:
  BackgroundWriter(Env& env, Clock& clock, std::string dir, int32_t keep_last, PinHooks hooks = {});
  ~BackgroundWriter();  // finishes the write under way, joins

  // Takes the memory for snapshots of such content, on the writer's thread. Without this call, or
  // if there is too little memory, the first Submit tries.
  void Reserve(const CheckpointContent& content);

  // Whether no checkpoint is being written, so that Submit would begin at once. Waits for the
  // memory of Reserve, never for a checkpoint.
  bool CanBegin();
  // Waits until CanBegin().
  void AwaitIdle();

  // Waits for the write before, takes a snapshot of `content` and returns. In host memory the
  // tensors of `content` may then change; with content.reader, when the reader says so.
  // `content.table` and the reader must outlive the write. The result of the write before, if it
  // was not taken yet, is kept for Take(). Without memory for a snapshot it writes the checkpoint
  // itself, straight from `content`, and returns when that is done. Errors: the reader's; nothing
  // is written then.
  absl::Status Submit(const CheckpointContent& content);

  // The oldest finished write not yet taken. With `wait`, blocks until the write under way is done
  // first. nullopt: none.
  std::optional<absl::StatusOr<CommittedCheckpoint>> Take(bool wait);

 private:
  void Run();
  void Begin(size_t reserve) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<CommittedCheckpoint> Write();
  bool Reserved() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !busy_ || reserve_ == 0; }
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
  // > 0: only take memory for this many bytes.
  size_t reserve_ ABSL_GUARDED_BY(mu_) = 0;
  // The writer thread's while busy_:
  CheckpointContent content_;
  ContentReader* reader_ = nullptr;  // whose copies may be under way
  Snapshot snapshot_;
  std::thread thread_;
};

}  // namespace hearth::trainer
