// Which source of a weighted mixture each sample of a run comes from.
#pragma once

#include <cstdint>
#include <vector>

namespace hearth::dataset {

// Depends only on (weights, sample). Shares are exact in every kPeriod samples, multiples of
// 1/kPeriod and at least that, and spread evenly within. Thread-safe.
class Mixture {
 public:
  static constexpr int64_t kPeriod = 65536;

  // One to kPeriod / 2 weights, finite and > 0.
  explicit Mixture(const std::vector<double>& weights);

  struct Place {
    int32_t source = 0;
    int64_t sample = 0;  // its number among those of the source, from 0
  };
  Place At(int64_t sample) const;

  // How many of samples 0 .. `samples` - 1 come from `source`.
  int64_t SamplesOf(int source, int64_t samples) const;

  // The part of all samples that comes from `source`.
  double Share(int source) const;

 private:
  struct Slot {
    int32_t source = 0;
    int32_t rank = 0;  // among this source's slots
  };

  std::vector<int64_t> quotas_;  // samples of each period, by source
  std::vector<Slot> slots_;      // one period; a single slot when there is one source
};

}  // namespace hearth::dataset
