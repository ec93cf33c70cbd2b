// A clock that tests move.
#pragma once

#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"

namespace hearth {

// Stands still until told otherwise. Thread-safe.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch() + absl::Hours(24 * 365 * 50))
      : wall_(start) {}

  absl::Time Now() override {
    absl::MutexLock lock(&mu_);
    return wall_;
  }
  absl::Duration Monotonic() override {
    absl::MutexLock lock(&mu_);
    return monotonic_;
  }
  std::string_view BootId() override { return "fake"; }

  // Returns when the condition holds or Advance() has moved past the deadline. Advance() cannot
  // wake `mu`, which it does not know; so the wait looks at the fake time every millisecond of real
  // time.
  bool AwaitWithTimeout(absl::Mutex& mu,
                        const absl::Condition& condition,
                        absl::Duration timeout) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (condition.Eval()) {
      return true;
    }
    absl::Duration deadline;
    {
      absl::MutexLock lock(&mu_);
      deadline = monotonic_ + timeout;
      ++waiters_;
    }
    bool met = false;
    while (!met && Monotonic() < deadline) {
      met = mu.AwaitWithTimeout(condition, absl::Milliseconds(1));
    }
    {
      absl::MutexLock lock(&mu_);
      --waiters_;
    }
    return met || condition.Eval();
  }

  // Moves both times forward; `by` >= 0.
  void Advance(absl::Duration by) {
    absl::MutexLock lock(&mu_);
    wall_ += by;
    monotonic_ += by;
  }
  // Moves only wall time, in either direction.
  void JumpWall(absl::Duration by) {
    absl::MutexLock lock(&mu_);
    wall_ += by;
  }
  // Blocks until at least `count` threads are inside AwaitWithTimeout, their deadlines fixed. Call
  // before Advance().
  void AwaitWaiters(int count) {
    mu_.Lock();
    const auto enough = [this, count]()
                            ABSL_NO_THREAD_SAFETY_ANALYSIS { return waiters_ >= count; };
    mu_.Await(absl::Condition(&enough));
    mu_.Unlock();
  }

 private:
  absl::Mutex mu_;
  absl::Time wall_ ABSL_GUARDED_BY(mu_);
  absl::Duration monotonic_ ABSL_GUARDED_BY(mu_);
  int waiters_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace hearth
