#include <algorithm>

#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"
#include "common/time/clock.h"
#include "jobctl/command.h"

namespace hearth::jobctl {
namespace {

constexpr absl::Duration kGiveUpAfter = absl::Minutes(2);

}  // namespace

absl::Status RetryStream(const std::function<absl::Status(bool& progressed)>& once,
                         const std::function<bool(absl::Duration)>& pause) {
  rpc::Backoff backoff(rpc::Backoff::Options{});
  // Since the stream last brought something: the pauses, and the time with what the attempts took.
  absl::Duration paused = absl::ZeroDuration();
  absl::Duration since = Clock::Real().Monotonic();
  while (true) {
    bool progressed = false;
    const absl::Status status = once(progressed);
    if (progressed) {
      paused = absl::ZeroDuration();
      since = Clock::Real().Monotonic();
      backoff.Reset();
    }
    const absl::Duration broken = std::max(paused, Clock::Real().Monotonic() - since);
    if (status.code() != absl::StatusCode::kUnavailable || broken > kGiveUpAfter) {
      return status;
    }
    const absl::Duration wait = backoff.Next();
    paused += wait;
    if (!pause(wait)) {
      return absl::OkStatus();
    }
  }
}

absl::Status RetryStream(const std::function<absl::Status(bool& progressed)>& once) {
  return RetryStream(once, [](absl::Duration wait) {
    absl::Mutex mu;
    const bool never = false;
    absl::MutexLock lock(&mu);
    Clock::Real().AwaitWithTimeout(mu, absl::Condition(&never), wait);
    return !Interrupted();
  });
}

}  // namespace hearth::jobctl
