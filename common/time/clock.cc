#include "common/time/clock.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>

namespace hearth {
namespace {

absl::Duration MonotonicNow() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return absl::DurationFromTimespec(ts);
}

std::string ReadBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

// Tests let the wall clock of a process jump: the file that HEARTH_WALL_CLOCK_OFFSET names has the
// seconds by which it is ahead. Without the variable this costs a branch.
absl::Duration WallOffset() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, and nobody sets it in this process
  static const char* const path = std::getenv("HEARTH_WALL_CLOCK_OFFSET");
  if (path == nullptr) [[likely]] {
    return absl::ZeroDuration();
  }
  std::ifstream file(path);
  int64_t seconds = 0;
  file >> seconds;
  return absl::Seconds(seconds);
}

class RealClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now() + WallOffset(); }
  absl::Duration Monotonic() override { return MonotonicNow(); }
  std::string_view BootId() override {
    static const std::string* const id = new std::string(ReadBootId());
    return *id;
  }

  // absl::Mutex counts its timeouts on the wall clock. Short slices, checked against the monotonic
  // clock, keep a jump of the wall clock forward from ending a wait early.
  bool AwaitWithTimeout(absl::Mutex& mu,
                        const absl::Condition& condition,
                        absl::Duration timeout) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const absl::Duration deadline = MonotonicNow() + std::max(timeout, absl::ZeroDuration());
    while (true) {
      const absl::Duration left = deadline - MonotonicNow();
      if (left <= absl::ZeroDuration()) {
        return condition.Eval();
      }
      if (mu.AwaitWithTimeout(condition, std::min(left, absl::Seconds(1)))) {
        return true;
      }
    }
  }
};

}  // namespace

Clock& Clock::Real() {
  static RealClock* const clock = new RealClock;
  return *clock;
}

}  // namespace hearth
