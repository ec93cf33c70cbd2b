#include "jobctl/client/retry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"
#include "common/time/clock.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {
namespace {

constexpr absl::Duration kGiveUpAfter = absl::Minutes(2);
constexpr absl::Duration kSayEvery = absl::Seconds(4);

}  // namespace

void OutageNotice::Away(absl::Duration broken, const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  // If several streams broke together, only the first one reports it.
  if (away_ && broken < said_ + kSayEvery) {
    return;
  }
  const bool first = !away_;
  away_ = true;
  said_ = broken;
  say_(absl::StrCat(absl::StrFormat("reconnecting, %.0f s", absl::ToDoubleSeconds(broken)),
                    first ? absl::StrCat(": ", why.message()) : ""));
}

void OutageNotice::Back() {
  absl::MutexLock lock(&mu_);
  if (away_) {
    away_ = false;
    say_("connected again");
  }
}

absl::Status RetryStream(const StreamOnce& once,
                         const std::function<bool(absl::Duration)>& pause,
                         OutageNotice& notice) {
  rpc::Backoff backoff(rpc::Backoff::Options{});
  // Since the stream last delivered a message: the pauses alone, and the time including attempts.
  absl::Duration paused = absl::ZeroDuration();
  absl::Duration since = Clock::Real().Monotonic();
  while (true) {
    bool progressed = false;
    const absl::Status status = once([&progressed, &notice] {
      progressed = true;
      notice.Back();
    });
    if (progressed) {
      paused = absl::ZeroDuration();
      since = Clock::Real().Monotonic();
      backoff.Reset();
    }
    const absl::Duration broken = std::max(paused, Clock::Real().Monotonic() - since);
    if (status.code() != absl::StatusCode::kUnavailable || broken > kGiveUpAfter) {
      return status;
    }
    notice.Away(broken, status);
    const absl::Duration wait = backoff.Next();
    paused += wait;
    if (!pause(wait)) {
      return absl::OkStatus();
    }
  }
}

absl::Status RetryStream(const StreamOnce& once, OutageNotice& notice) {
  return RetryStream(
      once,
      [](absl::Duration wait) {
        absl::Mutex mu;
        const bool never = false;
        absl::MutexLock lock(&mu);
        Clock::Real().AwaitWithTimeout(mu, absl::Condition(&never), wait);
        return !Interrupted();
      },
      notice);
}

absl::Status RetryStream(const StreamOnce& once) {
  OutageNotice notice([](const std::string& line) { WriteErr(absl::StrCat(line, "\n")); });
  return RetryStream(once, notice);
}

}  // namespace hearth::jobctl
