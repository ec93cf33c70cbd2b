#include "worker/trainer/cli/bench_length.h"

namespace hearth::trainer {

bool BenchLength::MoreWarmUp(int steps_done, double seconds) const {
  return steps_done < kWarmUpSteps || (on_gpu && seconds < kWarmUpSeconds);
}

bool BenchLength::MoreSteps(int steps_done, double seconds) const {
  if (steps > 0) {
    return steps_done < steps;
  }
  return (on_gpu && seconds < kWattsSeconds) ||
         (steps_done < kBenchSteps && seconds < kBenchSeconds);
}

bool BenchTurns::Decide(int step) {
  absl::MutexLock lock(&mu_);
  const absl::Duration now = clock_.Monotonic();
  if (step == 0) {
    begin_ = now;
  }
  const double seconds = absl::ToDoubleSeconds(now - begin_);
  if (warm_up_ < 0 && !length_.MoreWarmUp(step, seconds)) {
    warm_up_ = step;
    begin_ = now;
  } else if (warm_up_ >= 0 && !length_.MoreSteps(step - warm_up_, seconds)) {
    over_ = true;
    return false;
  }
  decided_ = step + 1;
  return true;
}

bool BenchTurns::Await(int step) {
  absl::MutexLock lock(&mu_);
  const auto known = [&] {
    mu_.AssertHeld();
    return over_ || decided_ > step;
  };
  mu_.Await(absl::Condition(&known));
  return decided_ > step;
}

int BenchTurns::warm_up_steps() {
  absl::MutexLock lock(&mu_);
  return warm_up_;
}

}  // namespace hearth::trainer
