// Named places where a test can make a program crash, stall, stop or fail.
//
//   HEARTH_FAULTS="store.before_commit=crash@3,trainer.step=delay:100ms,agent.send=error"
//
// Actions: crash (SIGKILL of oneself), stop (SIGSTOP of oneself), error (Check returns kInternal),
// delay:DURATION.
// "@N" acts at the N-th time the point is reached only (from 1, default: each time); "@N+" from the
// N-th on. With the variable unset, a point costs one relaxed load and a branch.
#pragma once

#include <atomic>
#include <string_view>

#include "absl/status/status.h"
#include "common/fault/points.h"

namespace hearth::fault {

// Reads HEARTH_FAULTS. kInvalidArgument: bad syntax, unknown action, or a point that is not in the
// table. Call once from main(), before threads start; without the call no fault ever fires.
absl::Status InitFromEnvironment();

// The same from a string; for tests. "" turns all faults off.
absl::Status Configure(std::string_view faults);

namespace internal {
extern std::atomic<bool> enabled;
absl::Status CheckSlow(std::string_view name);
}  // namespace internal

// Acts as configured for `name`: returns OK, or an error for action "error", or does not return.
inline absl::Status Check(std::string_view name) {
  if (!internal::enabled.load(std::memory_order_relaxed)) [[likely]] {
    return absl::OkStatus();
  }
  return internal::CheckSlow(name);
}

// How often `name` was reached since Configure; 0 when faults are off.
int Hits(std::string_view name);

}  // namespace hearth::fault

// Where no status can be returned; action "error" is then ignored.
#define HEARTH_FAULT_POINT(name)                          \
  do {                                                    \
    static_cast<void>(::hearth::fault::Check(name).ok()); \
  } while (false)
