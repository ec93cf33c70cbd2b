// When to kill a silent trainer, and when to report one that takes long to die.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "worker/daemon/supervise/child_process.h"

namespace hearth::worker {

struct SilenceLimits {
  // A trainer that has said nothing for this long is killed in any case; infinite = never, also not
  // by the two limits below. It sends Alive each second from a thread of its own, so silence means
  // that the whole process stands still: swap, a hung file system, a debugger.
  absl::Duration silence = absl::Seconds(15);
  // The same when the process is stopped (state T of /proc/PID/stat): then there is no doubt, and
  // its peers wait. Does not apply when a debugger holds it (state t). Three heartbeats.
  absl::Duration stopped = absl::Seconds(3);
  // In place of `silence` before the first message: a program may take long to load from a network
  // file system.
  absl::Duration first = absl::Minutes(1);
};

// Why to kill a trainer that has said nothing for `silent`; "" = it may live. `spoke`: it has said
// something before. `state`: as in proc(5); '\0' or 'Z' = it has ended, which is noticed elsewhere.
std::string TooSilent(const SilenceLimits& limits, absl::Duration silent, bool spoke, char state);

// True if TooSilent would need to know the state: it costs a read of /proc.
bool WorthALook(const SilenceLimits& limits, absl::Duration silent);

// True for a process that no longer computes although it may not be reaped yet: its first thread
// has ended (others may still be in the kernel), or is about to end by SIGKILL.
bool LooksDying(const ProcessStat& stat);

// Decides when the coordinator is told that a trainer takes long to end. A GPU's driver may take
// many seconds to end a process whose peers wait for it in their kernels.
class DeathWatch {
 public:
  // A trainer that ends faster is reported only by its exit.
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
