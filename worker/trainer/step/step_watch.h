// An end to waiting for a step in which the ranks need one another.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "worker/trainer/comm/collective.h"

namespace hearth::trainer {

// A collective on a GPU waits for its peers for ever, and so would whoever waits for the GPU: a
// peer whose network or GPU hangs is alive by every other sign. Used by one thread; allocates
// nothing until something fails.
class StepWatch {
 public:
  // A step may take this long, or so many times the longest one so far, whatever is more.
  static constexpr absl::Duration kLeast = absl::Seconds(60);
  static constexpr int kTimesLongest = 20;
  // Where something lay between: a peer may still be writing the checkpoint before the last.
  static constexpr absl::Duration kAfterPause = absl::Minutes(30);
  // How often the transport is asked.
  static constexpr absl::Duration kHealthEvery = absl::Milliseconds(100);

  // Both outlive the object. `clock` measures the waits.
  StepWatch(Collective& comm, Clock& clock) : comm_(comm), clock_(clock) {}

  // The step that is waited for next was launched with nothing ahead of it after the ranks had
  // something else to do; until Took().
  void Paused() { after_pause_ = true; }
  // The step that was waited for has taken this long.
  void Took(absl::Duration step);
  // Longest wait from now on.
  absl::Duration limit() const;

  // Looks at `done` until it is true or an error, which is returned. `step`: what is waited for.
  // kDeadlineExceeded after limit(); else what the collective's Health() says.
  absl::Status Await(int64_t step, absl::FunctionRef<absl::StatusOr<bool>()> done);

 private:
  // OK: go on waiting. `asked`: when the transport was asked last.
  absl::Status MayWaitOn(int64_t step, absl::Duration start, absl::Duration* asked);
  absl::Status GiveUp(int64_t step, absl::Duration waited) const;

  Collective& comm_;
  Clock& clock_;
  absl::Duration longest_ = absl::ZeroDuration();
  bool after_pause_ = false;
};

}  // namespace hearth::trainer
