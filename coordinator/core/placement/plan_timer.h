// When the scheduler is to plan. Parts ask for a plan when something changed that it looks at; the
// core plans in a Tick. Monotonic times.
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"

namespace hearth::coordinator {

// Not thread-safe.
class PlanTimer {
 public:
  explicit PlanTimer(absl::Duration start) : next_(start), not_before_(start) {}

  // Something that a plan looks at has changed.
  void Ask() { asked_ = true; }
  // Nothing has changed that a second plan would see.
  void Forget() { asked_ = false; }
  // A plan is to be made at that time whatever happens.
  void PlanAt(absl::Duration time) { next_ = time; }

  bool DueAt(absl::Duration now) const { return (asked_ && now >= not_before_) || now >= next_; }
  // The plan is being made, with so many jobs waiting.
  void Begin(absl::Duration now, size_t waiting) {
    asked_ = false;
    next_ = now + kPlanEvery;
    if (waiting > kLongQueue) {
      not_before_ = now + kLongQueuePause;
    }
  }
  // When a Tick is due for a plan; infinite when nobody asked.
  absl::Duration Deadline(absl::Duration now) const {
    return asked_ ? std::max(now, not_before_) : absl::InfiniteDuration();
  }

 private:
  static constexpr absl::Duration kPlanEvery = absl::Seconds(5);
  // A long queue is not planned again for each command.
  static constexpr size_t kLongQueue = 500;
  static constexpr absl::Duration kLongQueuePause = absl::Milliseconds(200);

  bool asked_ = true;
  absl::Duration next_;
  absl::Duration not_before_;
};

}  // namespace hearth::coordinator
