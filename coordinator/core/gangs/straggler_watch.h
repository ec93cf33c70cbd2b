// Which ranks of a gang the others wait for: those whose own work takes persistently longer.
#pragma once

#include <vector>

#include "absl/time/time.h"

namespace hearth::coordinator {

// Ranks report the median time of their own work on a micro-batch over their last 32 steps. Not
// thread-safe; knows no clock.
class StragglerWatch {
 public:
  // A rank is named once its time has been kSlowRatio times the median of the other ranks' times
  // for kPersists, until it falls below kFairRatio.
  static constexpr double kSlowRatio = 1.3;
  static constexpr double kFairRatio = 1.15;
  static constexpr absl::Duration kPersists = absl::Seconds(10);
  // Differences below this are noise of short steps.
  static constexpr double kLeastSeconds = 0.001;

  struct Change {
    int rank = 0;
    double ratio = 0;  // to the median of the others
    bool slow = false;
  };

  // `seconds` 0 = not known. What it changes is found by the next Review().
  void Heard(int ranks, int rank, double seconds);
  // Ranks that are named from now on, or no longer.
  std::vector<Change> Review(absl::Duration now);

 private:
  struct Rank {
    double seconds = 0;
    absl::Duration slow_since = absl::InfiniteDuration();
    bool named = false;
  };

  // Upper one of two; 0 = not all of them are known.
  double MedianOfOthers(size_t rank) const;

  std::vector<Rank> ranks_;
};

}  // namespace hearth::coordinator
