// Verifying the files of a job's data beside its training: large ones take minutes to read.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/io/verified_files.h"
#include "common/time/clock.h"

namespace hearth::trainer {

// Begins at once, on a thread of its own. Thread-safe.
class BackgroundCheck {
 public:
  BackgroundCheck(FileVerifier verifier, std::vector<RecordedFile> files, Clock& clock);
  ~BackgroundCheck();  // gives up what is not done
  BackgroundCheck(const BackgroundCheck&) = delete;
  BackgroundCheck& operator=(const BackgroundCheck&) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }
  // As of FileVerifier::Verify; OK while it is not done. Takes no lock then.
  absl::Status status() const { return done() ? found_ : absl::OkStatus(); }
  // status() when it is done, or after `timeout`.
  absl::Status Wait(absl::Duration timeout);

 private:
  const FileVerifier verifier_;
  const std::vector<RecordedFile> files_;
  Clock& clock_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  absl::Status found_;  // written once, before done_
  absl::Mutex mu_;      // only for the wait
  std::thread thread_;
};

}  // namespace hearth::trainer
