#include "worker/trainer/cli/bench/bench_length.h"

namespace hearth::trainer {

bool BenchLength::MoreWarmUp(int steps_done, double seconds) const {
  constexpr int kSteps = 3;
  constexpr double kSeconds = 2;  // until a GPU's clocks and power have settled under load
  return steps_done < kSteps || (on_gpu && seconds < kSeconds);
}

bool BenchLength::MoreSteps(int steps_done, double seconds) const {
  constexpr int kSteps = 60;
  constexpr double kSeconds = 5;
  if (steps > 0) {
    return steps_done < steps;
  }
  return (on_gpu && seconds < kWattsSeconds) || (steps_done < kSteps && seconds < kSeconds);
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
