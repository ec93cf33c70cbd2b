// Named places where a test can make a program crash, stall, stop or fail.
//
//   HEARTH_FAULTS="store.before_commit=crash@3,trainer.step=delay:100ms,agent.send=error"
//
// Actions: crash (SIGKILL of oneself), stop (SIGSTOP), error (Check returns kInternal), full (it
// returns kResourceExhausted, as a full disk does), delay:DURATION, hang (the thread never goes
// on), hold:FILE (it goes on when FILE exists; the name has no comma and no @).
// "@N" acts only the N-th time the point is reached (from 1; default: each time); "@N+" from the
// N-th on. At points marked by_step, N is a number of a step: "@N" acts in the first attempt at
// step N, "@N+" and "@N-L" in the first attempt at each step from N on or up to L, and a further
// "xM" in the first M attempts: "error@7x9" whenever step 7 is tried, up to nine times. With the
// variable unset, a point costs one relaxed load and a branch.
#pragma once

#include <atomic>
#include <cstdint>
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
absl::Status CheckStepSlow(std::string_view name, int64_t step, int attempt);
}  // namespace internal

// Acts as configured for `name`: returns OK, or an error for "error" and "full", or never returns.
inline absl::Status Check(std::string_view name) {
  if (!internal::enabled.load(std::memory_order_relaxed)) [[likely]] {
    return absl::OkStatus();
  }
  return internal::CheckSlow(name);
}

// The same at a point marked by_step: `step` from 1, `attempt` at it from 0.
inline absl::Status CheckStep(std::string_view name, int64_t step, int attempt) {
  if (!internal::enabled.load(std::memory_order_relaxed)) [[likely]] {
    return absl::OkStatus();
  }
  return internal::CheckStepSlow(name, step, attempt);
}

// Whether any fault is configured.
inline bool Enabled() {
  return internal::enabled.load(std::memory_order_relaxed);
}

// How often `name` was reached since Configure; 0 when faults are off.
int Hits(std::string_view name);

}  // namespace hearth::fault

// Where no status can be returned; actions "error" and "full" are then ignored.
#define HEARTH_FAULT_POINT(name)                          \
  do {                                                    \
    static_cast<void>(::hearth::fault::Check(name).ok()); \
  } while (false)
