// The only place that asks what time it is.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace hearth {

// Thread-safe. Wall time is for people and records; only Monotonic() measures durations and
// deadlines.
class Clock {
 public:
  virtual ~Clock() = default;

  // Wall time (UTC). May jump.
  virtual absl::Time Now() = 0;

  // Time since an arbitrary origin; never goes back. Comparable between processes that have the
  // same BootId, if that is not empty.
  virtual absl::Duration Monotonic() = 0;

  // The machine's boot in which this process runs; "" = not known. Lives as long as the clock.
  virtual std::string_view BootId() { return ""; }

  // Blocks with `mu` held until `condition` is true or `timeout` (of this clock) has passed;
  // returns condition(). `condition` is evaluated with `mu` held.
  virtual bool AwaitWithTimeout(absl::Mutex& mu,
                                const absl::Condition& condition,
                                absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) = 0;

  // The machine's clock. Lives for ever.
  static Clock& Real();
};

}  // namespace hearth
