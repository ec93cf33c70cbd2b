// Where ranks find one another: the key-value space of one (job, epoch).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"

namespace hearth::trainer {

// Thread-safe. Keys are written once.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // kResourceExhausted: an earlier put was refused (the space is full); a put does not wait for
  // that.
  virtual absl::Status Put(std::string_view key, std::string_view value) = 0;
  // Blocks until `key` exists. kDeadlineExceeded names the key; kUnavailable: the other side is
  // gone; kResourceExhausted: its put was refused.
  virtual absl::StatusOr<std::string> Wait(std::string_view key, absl::Duration timeout) = 0;
};

// A store for ranks in one process.
class LocalKeyValueStore : public KeyValueStore {
 public:
  explicit LocalKeyValueStore(Clock& clock = Clock::Real()) : clock_(clock) {}
  absl::Status Put(std::string_view key, std::string_view value) override;
  absl::StatusOr<std::string> Wait(std::string_view key, absl::Duration timeout) override;

 private:
  Clock& clock_;
  absl::Mutex mu_;
  std::map<std::string, std::string, std::less<>> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::trainer
