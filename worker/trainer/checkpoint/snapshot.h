// The copy of a checkpoint's content that is written while training goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/checkpoint/checkpoint.h"

namespace hearth::trainer {

// Makes memory such that a device copies to it without a stop, and takes that back. Empty: the
// content is in host memory. Called from any thread.
struct PinHooks {
  std::function<absl::Status(void* data, size_t bytes)> pin = nullptr;
  std::function<void(void* data)> unpin = nullptr;
};

// Not thread-safe.
class Snapshot {
 public:
  explicit Snapshot(PinHooks hooks);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Takes the memory for `bytes` with `threads` threads, touched and pinned; keeps what it has if
  // that is enough. Takes seconds for tens of GB. kResourceExhausted: more than half of
  // `available`. Memory that cannot be pinned is used as it is: copies to it are slower.
  absl::Status Reserve(size_t bytes, int64_t available, int threads);
  size_t capacity() const { return capacity_; }

  // What Take needs for `content`. Weights that are also state (fp32 masters) count once.
  static size_t Bytes(const CheckpointContent& content);

  // Copies, or with content.reader begins to copy, all that `content` points to, and returns it
  // with pointers to the copy and no reader. capacity() must be Bytes(content) or more. Errors:
  // the reader's.
  absl::StatusOr<CheckpointContent> Take(const CheckpointContent& content);

 private:
  void Release();
  void Pin();

  const PinHooks hooks_;
  uint8_t* data_ = nullptr;
  size_t capacity_ = 0;
  size_t pinned_ = 0;  // bytes from the start
};

}  // namespace hearth::trainer
