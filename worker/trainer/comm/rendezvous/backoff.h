// Waiting by looking again and again.
#pragma once

#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hearth::trainer {

// Pauses between looks at something that usually takes microseconds and may take minutes: at first
// it only yields the processor, then it sleeps for 100 us a time. Allocates nothing.
class Backoff {
 public:
  void Pause() {
    if (pauses_ < 2000) {
      ++pauses_;
      std::this_thread::yield();
    } else {
      absl::SleepFor(absl::Microseconds(100));
    }
  }

 private:
  int pauses_ = 0;
};

}  // namespace hearth::trainer
