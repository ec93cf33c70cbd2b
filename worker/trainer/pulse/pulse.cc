#include "worker/trainer/pulse/pulse.h"

#include <algorithm>

namespace hearth::trainer {

void Pulse::Begin(Activity activity, const char* what) {
  activity_.store(activity, std::memory_order_relaxed);
  what_.store(what, std::memory_order_relaxed);
  marks_.fetch_add(1, std::memory_order_release);
}

void Pulse::StepDone(int64_t step, absl::Duration took) {
  took_ns_[attempts_++ % kSteps].store(std::max<int64_t>(1, absl::ToInt64Nanoseconds(took)),
                                       std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  marks_.fetch_add(1, std::memory_order_release);
}

void Pulse::Restart(int64_t step) {
  for (std::atomic<int64_t>& ns : took_ns_) {
    ns.store(0, std::memory_order_relaxed);
  }
  attempts_ = 0;
  step_.store(step, std::memory_order_relaxed);
  marks_.fetch_add(1, std::memory_order_release);
}

Pulse::Reading Pulse::Read() const {
  Reading reading;
  // First: what was written before that mark is then seen. Later values may be mixed in, which does
  // no harm.
  reading.marks = marks_.load(std::memory_order_acquire);
  reading.activity = activity();
  reading.what = what();
  reading.step = step_.load(std::memory_order_relaxed);
  std::array<int64_t, kSteps> took{};
  size_t count = 0;
  for (const std::atomic<int64_t>& ns : took_ns_) {
    if (const int64_t value = ns.load(std::memory_order_relaxed); value > 0) {
      took[count++] = value;
    }
  }
  if (count > 0) {
    std::sort(took.begin(), took.begin() + static_cast<ptrdiff_t>(count));
    // Nine of ten steps took no longer: a single slow one does not set the limit.
    reading.learned = absl::Nanoseconds(took[(count - 1) * 9 / 10]);
  }
  return reading;
}

}  // namespace hearth::trainer
