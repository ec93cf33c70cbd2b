#include "common/dataset/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hearth::dataset {
namespace {

// Parts of the period in proportion to the weights, each at least 1, together exactly kPeriod.
std::vector<int64_t> Quotas(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> quotas(weights.size());
  int64_t left = Mixture::kPeriod;
  for (size_t i = 0; i < weights.size(); ++i) {
    quotas[i] = std::max<int64_t>(
        1, std::llround(weights[i] / sum * static_cast<double>(Mixture::kPeriod)));
    left -= quotas[i];
  }
  *std::max_element(quotas.begin(), quotas.end()) += left;  // rounding: at most one half per source
  return quotas;
}

}  // namespace

// Smooth weighted round-robin: after every prefix of the period each source has had its share to
// within one sample or so.
Mixture::Mixture(const std::vector<double>& weights) {
  if (weights.size() == 1) {
    quotas_ = {1};
    slots_ = {{0, 0}};
    return;
  }
  quotas_ = Quotas(weights);
  std::vector<int64_t> credit(quotas_.size(), 0);
  std::vector<int32_t> taken(quotas_.size(), 0);
  slots_.reserve(kPeriod);
  for (int64_t slot = 0; slot < kPeriod; ++slot) {
    for (size_t i = 0; i < quotas_.size(); ++i) {
      credit[i] += quotas_[i];
    }
    // Each slot adds a period in all to the credits and takes one from the source that is drawn, so
    // the sum stays 0, and after a period every credit is 0 again.
    const size_t next =
        static_cast<size_t>(std::max_element(credit.begin(), credit.end()) - credit.begin());
    credit[next] -= kPeriod;
    slots_.push_back({static_cast<int32_t>(next), taken[next]++});
  }
}

Mixture::Place Mixture::At(int64_t sample) const {
  const int64_t period = static_cast<int64_t>(slots_.size());
  const Slot slot = slots_[static_cast<size_t>(sample % period)];
  return {slot.source,
          sample / period * quotas_[static_cast<size_t>(slot.source)] + int64_t{slot.rank}};
}

int64_t Mixture::SamplesOf(int source, int64_t samples) const {
  const int64_t period = static_cast<int64_t>(slots_.size());
  const int64_t count = samples / period * quotas_[static_cast<size_t>(source)];
  // The last slot of the source before the end of the partial period tells its rank there.
  for (int64_t slot = samples % period - 1; slot >= 0; --slot) {
    const Slot& at = slots_[static_cast<size_t>(slot)];
    if (at.source == source) {
      return count + at.rank + 1;
    }
  }
  return count;
}

double Mixture::Share(int source) const {
  return static_cast<double>(quotas_[static_cast<size_t>(source)]) /
         static_cast<double>(slots_.size());
}

}  // namespace hearth::dataset
