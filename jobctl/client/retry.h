// Streams that outlive a restart of the coordinator.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace hearth::jobctl {

// What a command that follows a job says while its coordinator is away: "reconnecting, 12 s" at
// once and then at most every few seconds, and that it is back. One for all streams of a command.
// Thread-safe.
class OutageNotice {
 public:
  // `say` gets whole lines without their end, one call at a time.
  explicit OutageNotice(std::function<void(const std::string& line)> say) : say_(std::move(say)) {}

  // The stream has been broken for this long, because of `why`.
  void Away(absl::Duration broken, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // A stream delivers messages again. Says nothing if the outage was not reported.
  void Back() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::function<void(const std::string& line)> say_;
  absl::Mutex mu_;
  bool away_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration said_ ABSL_GUARDED_BY(mu_);  // `broken` of the last line
};

// Repeats a stream that ends with kUnavailable (the coordinator restarts), for two minutes after
// its last message. `once` runs the stream from where it broke, calls its argument for each
// message, and returns how the stream ended. `pause` waits that long; it returns false when no
// repetition is needed, and the result is then OK.
using StreamOnce = std::function<absl::Status(const std::function<void()>& progressed)>;
absl::Status RetryStream(const StreamOnce& once,
                         const std::function<bool(absl::Duration)>& pause,
                         OutageNotice& notice);
// The same with real pauses, for streams that no other thread ends before an interrupt.
absl::Status RetryStream(const StreamOnce& once, OutageNotice& notice);
// The same with lines on stderr, for commands with one stream that do nothing else.
absl::Status RetryStream(const StreamOnce& once);

}  // namespace hearth::jobctl
