#include "coordinator/core/jobs/queue_clock.h"

#include <algorithm>

#include "coordinator/core/errors.h"

namespace hearth::coordinator {

absl::Time QueueTimeOf(const v1::JobRecord& record) {
  return FromProto(record.has_queue_time() ? record.queue_time() : record.job().create_time());
}

void QueueClock::Restore(const v1::JobRecord& record, Now now) {
  const absl::Time place = QueueTimeOf(record);
  latest_ = std::max(latest_, place);
  // Readings of one boot agree with each other; where the wall clock has jumped, guesses do not.
  if (const auto since = TimeSince(record.queue_moment(), now)) {
    exact_ = place + *since - now.monotonic;
    return;
  }
  if (record.has_start()) {
    return;  // its place may be later than its submit time, and nobody knows by how much
  }
  const absl::Duration since =
      std::max(absl::ZeroDuration(), now.wall - FromProto(record.job().create_time()));
  const absl::Time guess = place + since - now.monotonic;
  by_wall_ = by_wall_.has_value() ? std::max(*by_wall_, guess) : guess;
}

absl::Time QueueClock::Read(Now now) {
  if (!exact_.has_value()) {
    exact_ = by_wall_.value_or(now.wall - now.monotonic);
  }
  return std::max(latest_ + absl::Nanoseconds(1), *exact_ + now.monotonic);
}

}  // namespace hearth::coordinator
