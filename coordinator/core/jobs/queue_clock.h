// The clock of the queue: submit times that no jump of the wall clock moves, and that go on evenly
// over restarts of the coordinator.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "coordinator/core/moment.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {

// Its first reading of a new store is the wall clock's; from then on it runs by the machine's
// monotonic clock. A start finds where it was by the jobs that were submitted since the machine's
// boot. Without one, only the wall clock tells how long ago the last job was submitted; even then a
// reading is behind the places of all jobs that were there at the start. Not thread-safe.
class QueueClock {
 public:
  // A job of the store; all of them before the first Read, all with the same `now`.
  void Restore(const v1::JobRecord& record, Now now);
  // Nanoseconds. Does not go backwards.
  absl::Time Read(Now now);

 private:
  // The reading when the monotonic clock was 0.
  std::optional<absl::Time> exact_;  // by jobs of this boot, or since the first Read
  std::optional<absl::Time> by_wall_;
  absl::Time latest_ = absl::InfinitePast();  // of the places of jobs
};

// The place of a job in the queue. Jobs of an earlier version have none: it is their submit time.
absl::Time QueueTimeOf(const v1::JobRecord& record);

}  // namespace hearth::coordinator
