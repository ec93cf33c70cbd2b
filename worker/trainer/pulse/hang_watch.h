// Decides when a rank that should make progress hangs. Pure: the caller brings times and readings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "worker/trainer/pulse/pulse.h"

namespace hearth::trainer {

struct HangLimits {
  // A step hangs if it makes no progress for `least` and for `times` times the time of a step.
  // Infinite = nothing ever hangs.
  absl::Duration least = absl::Milliseconds(3500);
  double times = 3.0;
};

// How long `reading` may stay as it is; infinite = for ever.
absl::Duration Allowance(const HangLimits& limits, const Pulse::Reading& reading);

class HangWatch {
 public:
  // How often Look should be called. A longer pause between two calls counts as twice this: the
  // whole process stood still, which is not the step thread's fault.
  static constexpr absl::Duration kPeriod = absl::Milliseconds(200);
  // A thread that computes without progress may go on for this many allowances, at least a minute.
  static constexpr int kBusyTimes = 20;

  // `computes`: whether a thread of this process runs, or would if it had a CPU. Asked only while
  // there is no progress. Null: not known, as on a GPU. A step on a CPU computes or waits for a CPU
  // all the time, and how long depends on what else the machine does, so such time counts less.
  HangWatch(const HangLimits& limits, std::function<bool()> computes)
      : limits_(limits), computes_(std::move(computes)) {}

  // "": all is well; else what is seen, for people.
  std::string Look(const Pulse::Reading& reading, absl::Duration now);

 private:
  const HangLimits limits_;
  const std::function<bool()> computes_;
  uint64_t marks_ = 0;
  absl::Duration looked_ = -absl::InfiniteDuration();
  absl::Duration since_;                          // the first look at these marks
  absl::Duration still_ = absl::ZeroDuration();   // without progress since, and without computing
  absl::Duration passed_ = absl::ZeroDuration();  // without progress since
};

}  // namespace hearth::trainer
