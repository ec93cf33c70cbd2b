#include "worker/trainer/step/step_watch.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "worker/trainer/comm/rendezvous/backoff.h"

namespace hearth::trainer {

void StepWatch::Took(absl::Duration step) {
  // What peers took for their checkpoint says nothing about steps.
  longest_ = after_pause_ ? longest_ : std::max(longest_, step);
  after_pause_ = false;
}

absl::Duration StepWatch::limit() const {
  return std::max(after_pause_ ? kAfterPause : kLeast, kTimesLongest * longest_);
}

absl::Status StepWatch::GiveUp(int64_t step, absl::Duration waited) const {
  return absl::DeadlineExceededError(absl::StrFormat(
      "rank %d of %d has waited %.1f s for step %d (limit %.0f s, longest step so far %.2f s): "
      "this is a collective in which a peer does not take part, because its network or a GPU "
      "hangs",
      comm_.rank(), comm_.world_size(), absl::ToDoubleSeconds(waited), step,
      absl::ToDoubleSeconds(limit()), absl::ToDoubleSeconds(longest_)));
}

absl::Status StepWatch::MayWaitOn(int64_t step, absl::Duration start, absl::Duration* asked) {
  const absl::Duration now = clock_.Monotonic();
  if (now - start > limit()) {
    return GiveUp(step, now - start);
  }
  if (now - *asked < kHealthEvery) {
    return absl::OkStatus();
  }
  *asked = now;
  return comm_.Health();
}

absl::Status StepWatch::Await(int64_t step, absl::FunctionRef<absl::StatusOr<bool>()> done) {
  const absl::Duration start = clock_.Monotonic();
  absl::Duration asked = start;
  Backoff backoff;
  for (;;) {
    // By asking again and again: a wait within the driver would not end when a peer is lost.
    HEARTH_ASSIGN_OR_RETURN(const bool is_done, done());
    if (is_done) {
      return absl::OkStatus();
    }
    HEARTH_RETURN_IF_ERROR(MayWaitOn(step, start, &asked));
    backoff.Pause();
  }
}

}  // namespace hearth::trainer
