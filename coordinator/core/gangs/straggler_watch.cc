#include "coordinator/core/gangs/straggler_watch.h"

#include <algorithm>
#include <cstddef>

namespace hearth::coordinator {

void StragglerWatch::Heard(int ranks, int rank, double seconds) {
  ranks_.resize(static_cast<size_t>(ranks));
  ranks_[static_cast<size_t>(rank)].seconds = seconds;
}

std::vector<StragglerWatch::Change> StragglerWatch::Review(absl::Duration now) {
  std::vector<Change> changes;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const double median = MedianOfOthers(i);
    if (median <= 0 || rank.seconds <= 0) {
      continue;
    }
    const double ratio = rank.seconds / median;
    const bool slow = ratio >= kSlowRatio && rank.seconds - median >= kLeastSeconds;
    rank.slow_since = slow ? std::min(rank.slow_since, now) : absl::InfiniteDuration();
    // Named at one ratio and cleared at a lower one, so that a rank between them does not come and
    // go.
    if (rank.named ? ratio < kFairRatio : now - rank.slow_since >= kPersists) {
      rank.named = !rank.named;
      changes.push_back({static_cast<int>(i), ratio, rank.named});
    }
  }
  return changes;
}

double StragglerWatch::MedianOfOthers(size_t rank) const {
  std::vector<double> others;
  others.reserve(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    // No median before every other rank has said how long it works.
    if (i != rank && ranks_[i].seconds <= 0) {
      return 0;
    }
    if (i != rank) {
      others.push_back(ranks_[i].seconds);
    }
  }
  if (others.empty()) {
    return 0;
  }
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

}  // namespace hearth::coordinator
