// Readings of the clock, and how they survive a restart of the coordinator.
#pragma once

#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {

// One reading of the clock. `wall` goes into records; every duration and deadline is measured with
// `monotonic`.
struct Now {
  absl::Time wall;
  absl::Duration monotonic;
  std::string_view boot_id = "";  // Clock::BootId
};

// The reading that the clocks had `ago` before `now`.
Now Before(Now now, absl::Duration ago);

// The monotonic reading, for a record.
v1::Moment MomentOf(Now now);
// From `moment` to `now`, not negative. Nothing: they are of different boots, or one is not known.
std::optional<absl::Duration> TimeSince(const v1::Moment& moment, Now now);

}  // namespace hearth::coordinator
