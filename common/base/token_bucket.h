// A rate with a burst, on a clock that the caller reads.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace hearth {

// Not thread-safe.
class TokenBucket {
 public:
  // Full at first. `per_second` and `burst` > 0, in whatever is counted.
  TokenBucket(double per_second, double burst)
      : per_second_(per_second), burst_(burst), tokens_(burst) {}

  // Takes `amount` if that much is there; else takes nothing and returns false. More than a whole
  // burst can be taken from a full bucket. `now` is monotonic; a step back counts as no time.
  bool Take(double amount, absl::Duration now) {
    tokens_ =
        std::min(burst_, tokens_ + per_second_ * std::max(0.0, absl::ToDoubleSeconds(now - last_)));
    last_ = std::max(last_, now);
    const double needed = std::min(amount, burst_);
    if (tokens_ < needed) {
      return false;
    }
    tokens_ -= needed;
    return true;
  }

 private:
  double per_second_;
  double burst_;
  double tokens_;
  absl::Duration last_ = -absl::InfiniteDuration();
};

}  // namespace hearth
