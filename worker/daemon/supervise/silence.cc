#include "worker/daemon/supervise/silence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hearth::worker {

bool WorthALook(const SilenceLimits& limits, absl::Duration silent) {
  return limits.silence != absl::InfiniteDuration() &&
         silent >= std::min({limits.stopped, limits.silence, limits.first});
}

std::string TooSilent(const SilenceLimits& limits, absl::Duration silent, bool spoke, char state) {
  // One that cannot be read, or is a zombie, has ended: its exit says why.
  if (limits.silence == absl::InfiniteDuration() || state == '\0' || state == 'Z') {
    return "";
  }
  const bool stopped = state == 'T' && silent >= limits.stopped;
  if (!stopped && silent < (spoke ? limits.silence : limits.first)) {
    return "";
  }
  return absl::StrCat(stopped ? "stopped" : "hung", ": no heartbeat for ",
                      absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(100))),
                      ", process state ", std::string(1, state));
}

bool LooksDying(const ProcessStat& stat) {
  return stat.exiting || stat.state == 'Z' || stat.state == 'X';
}

bool DeathWatch::LookIsDue(absl::Duration now) {
  if (since_ != absl::InfiniteDuration() || now - looked_ < kLook) {
    return false;
  }
  looked_ = now;
  return true;
}

void DeathWatch::Dying(absl::Duration now) {
  since_ = std::min(since_, now);
}

bool DeathWatch::NoticeIsDue(absl::Duration now) {
  if (noticed_ || For(now) < kPatience) {
    return false;
  }
  return noticed_ = true;
}

absl::Duration DeathWatch::For(absl::Duration now) const {
  return std::max(now - since_, absl::ZeroDuration());
}

}  // namespace hearth::worker
