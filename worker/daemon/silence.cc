#include "worker/daemon/silence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hearth::worker {

bool WorthALook(const SilenceLimits& limits, absl::Duration silent) {
  return limits.silence != absl::InfiniteDuration() &&
         silent >= std::min({limits.stopped, limits.silence, limits.first});
}

std::string TooSilent(const SilenceLimits& limits, absl::Duration silent, bool spoke, char state) {
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

}  // namespace hearth::worker
