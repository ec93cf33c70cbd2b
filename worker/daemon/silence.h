// When a trainer that says nothing is to be killed.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace hearth::worker {

struct SilenceLimits {
  // A trainer that has said nothing for so long is killed whatever it does; infinite = never, the
  // two below included. It sends Alive each second from a thread of its own, so silence means that
  // the whole process stands still: swap, a hung file system, a debugger.
  absl::Duration silence = absl::Seconds(15);
  // The same when the process is stopped (state T of /proc/PID/stat): no doubt is left then, and
  // its peers wait. Not for one that a debugger holds (state t). Three heartbeats.
  absl::Duration stopped = absl::Seconds(3);
  // In place of `silence` before the first message: a program may take long to load from a network
  // file system.
  absl::Duration first = absl::Minutes(1);
};

// Why a trainer is to be killed that has said nothing for `silent`, "" = it may live. `spoke`: it
// has said something before. `state`: as in proc(5); '\0' or 'Z' = it has ended, which is known
// otherwise.
std::string TooSilent(const SilenceLimits& limits, absl::Duration silent, bool spoke, char state);

// True if TooSilent would need to know the state: it costs a read of /proc.
bool WorthALook(const SilenceLimits& limits, absl::Duration silent);

}  // namespace hearth::worker
