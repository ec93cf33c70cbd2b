#include "coordinator/core/moment.h"

#include <algorithm>
#include <string>

namespace hearth::coordinator {

Now Before(Now now, absl::Duration ago) {
  return {now.wall - ago, now.monotonic - ago, now.boot_id};
}

v1::Moment MomentOf(Now now) {
  v1::Moment moment;
  moment.set_boot_id(std::string(now.boot_id));
  const int64_t nanos = absl::ToInt64Nanoseconds(now.monotonic);
  constexpr int64_t kSecond = 1'000'000'000;
  moment.mutable_since_boot()->set_seconds(nanos / kSecond);
  moment.mutable_since_boot()->set_nanos(static_cast<int32_t>(nanos % kSecond));
  return moment;
}

std::optional<absl::Duration> TimeSince(const v1::Moment& moment, Now now) {
  // Another boot: the monotonic clock has begun again, and the two cannot be compared.
  if (moment.boot_id().empty() || moment.boot_id() != now.boot_id) {
    return std::nullopt;
  }
  const absl::Duration then =
      absl::Seconds(moment.since_boot().seconds()) + absl::Nanoseconds(moment.since_boot().nanos());
  return std::max(absl::ZeroDuration(), now.monotonic - then);
}

}  // namespace hearth::coordinator
