// When a trainer that says nothing is to be killed, and when one that dies is slow to be gone.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "worker/daemon/child_process.h"

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

// True for a process that computes no more although it may not be reaped yet: its first thread has
// ended (the others may be in the kernel still), or is about to, by SIGKILL.
bool LooksDying(const ProcessStat& stat);

// Tells the moment at which a trainer's slow end is worth a word to the coordinator. A GPU's driver
// may take many seconds to end a process whose peers wait for it in their kernels.
class DeathWatch {
 public:
  // What ends in less says so by its exit alone.
  static constexpr absl::Duration kPatience = absl::Milliseconds(300);
  // Between two looks at a process's state.
  static constexpr absl::Duration kLook = absl::Milliseconds(100);

  // True when the process's state has not been looked at lately; reading it costs a file.
  bool LookIsDue(absl::Duration now);
  // It was seen to die, or SIGKILL was sent. Only the first time counts.
  void Dying(absl::Duration now);
  // True once: it has been dying for kPatience.
  bool NoticeIsDue(absl::Duration now);
  // How long it has been dying; zero if it is not.
  absl::Duration For(absl::Duration now) const;

 private:
  absl::Duration looked_ = -absl::InfiniteDuration();
  absl::Duration since_ = absl::InfiniteDuration();
  bool noticed_ = false;
};

}  // namespace hearth::worker
