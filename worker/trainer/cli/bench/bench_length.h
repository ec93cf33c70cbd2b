// How long a benchmark repeats a job's step.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"

namespace hearth::trainer {

// A GPU's energy counter moves too rarely to divide by fewer seconds than these.
inline constexpr double kWattsSeconds = 3;

// A GPU warms up for 2 s. A bench that is not told how many steps to measure ends at 60 steps or
// after 5 s, on a GPU not before kWattsSeconds.
struct BenchLength {
  bool on_gpu = false;
  int steps = 0;  // measured; 0: as the time allows

  // Whether to go on after so many steps and seconds.
  bool MoreWarmUp(int steps_done, double seconds) const;
  bool MoreSteps(int steps_done, double seconds) const;
};

// The same length for ranks that step together, a thread each: rank 0 decides about one step after
// the other, the others follow it.
class BenchTurns {
 public:
  BenchTurns(const BenchLength& length, Clock& clock) : length_(length), clock_(clock) {}

  // Decides about step `step`: 0, then 1, ... of warm-up and measurement together. False: there is
  // none, they are over. Only for rank 0.
  bool Decide(int step);
  // What rank 0 decided about the step; waits for it.
  bool Await(int step);
  // Steps of the warm-up. Every rank may call it once the warm-up is over.
  int warm_up_steps();

 private:
  const BenchLength length_;
  Clock& clock_;
  absl::Mutex mu_;
  int decided_ ABSL_GUARDED_BY(mu_) = 0;  // steps that take place, or have
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  int warm_up_ ABSL_GUARDED_BY(mu_) = -1;      // -1: still going on
  absl::Duration begin_ ABSL_GUARDED_BY(mu_);  // of the warm-up, then of the measurement
};

}  // namespace hearth::trainer
