#include "worker/trainer/pulse/hang_watch.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace hearth::trainer {
namespace {

constexpr absl::Duration kBusyLeast = absl::Minutes(1);

struct ActivityRow {
  Activity activity;
  absl::Duration least;  // infinite: not watched here
  bool learns;           // HangLimits and the time of a step count too
};

constexpr ActivityRow kRows[] = {
    // The coordinator has limits for loading and the rendezvous; a disk may hang for ever.
    {Activity::kOther, absl::InfiniteDuration(), false},
    // Timing matrix products, compiling and recording graphs: seconds, minutes on a busy machine.
    {Activity::kPreparing, absl::Minutes(10), false},
    {Activity::kStep, absl::ZeroDuration(), true},
    // A network file system may take its time; the next rank to read would wait as long.
    {Activity::kData, absl::Minutes(1), true},
    // The first one may choose plans for its shapes.
    {Activity::kEvaluation, absl::Minutes(1), true},
    // The rank that keeps its peers waiting is found by its own watch; a network that hangs, by
    // StepWatch and the collective's own limit.
    {Activity::kPeers, absl::InfiniteDuration(), false},
};

const ActivityRow& RowOf(Activity activity) {
  return *std::find_if(std::begin(kRows), std::end(kRows),
                       [activity](const ActivityRow& row) { return row.activity == activity; });
}

}  // namespace

absl::Duration Allowance(const HangLimits& limits, const Pulse::Reading& reading) {
  if (limits.least == absl::InfiniteDuration()) {
    return absl::InfiniteDuration();
  }
  const ActivityRow& row = RowOf(reading.activity);
  if (row.learns && reading.learned == absl::ZeroDuration()) {
    // On a GPU the second step is launched before the first is done.
    return RowOf(Activity::kPreparing).least;
  }
  return row.learns ? std::max({row.least, limits.least, limits.times * reading.learned})
                    : row.least;
}

std::string HangWatch::Look(const Pulse::Reading& reading, absl::Duration now) {
  // If this process stood still itself, that counts for two periods at most.
  const absl::Duration gap = std::min(now - looked_, 2 * kPeriod);
  looked_ = now;
  if (reading.marks != marks_) {
    marks_ = reading.marks;
    since_ = now;
    still_ = passed_ = absl::ZeroDuration();
    return "";
  }
  passed_ += gap;
  // Where no thread works the step hangs. Where one does, it is given far longer.
  if (!computes_ || !computes_()) {
    still_ += gap;
  }
  const absl::Duration allowance = Allowance(limits_, reading);
  const bool idle = still_ > allowance;
  if (!idle && passed_ <= std::max(kBusyLeast, kBusyTimes * allowance)) {
    return "";
  }
  return absl::StrFormat("no progress for %.1f s after step %d (%s; a step takes %.3g s): %s",
                         absl::ToDoubleSeconds(now - since_), reading.step, reading.what,
                         absl::ToDoubleSeconds(reading.learned),
                         idle ? "the step's thread hangs" : "it computes without end");
}

}  // namespace hearth::trainer
