// Watches over this process's rank: says what it sees when it hangs, and ends the process.
#pragma once

#include <functional>

#include "common/time/clock.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/pulse/hang_watch.h"
#include "worker/trainer/pulse/pulse.h"

namespace hearth::trainer {

struct PulseThreadOptions {
  HangLimits limits;
  bool on_gpu = false;           // the steps run on a GPU
  Link* link = nullptr;          // outlives the process's other threads
  const Pulse* pulse = nullptr;  // so does this
  Clock* clock = &Clock::Real();
  // Ends the process; returns only in tests. _exit by default.
  std::function<void(int code)> leave;
};

// Starts threads that live as long as the process, or until `leave` has returned. One looks at the
// pulse. When the rank hangs it tells the other ranks (key "hang"), logs the stacks of all threads,
// waits until its peers have logged theirs, 0.7 s at most, sends TrainerExit with EXIT_REASON_HUNG
// and leaves. The other one, of a rank that has peers, waits for that key, logs what this rank
// waits for and its stacks when a peer hangs, and says so (key "hang/RANK").
void StartPulseThread(const PulseThreadOptions& options);

}  // namespace hearth::trainer
