#include "worker/trainer/optim/muon/owners.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace hearth::trainer {

int64_t OrthogonalCost(int64_t rows, int64_t cols) {
  return std::min(rows, cols) * rows * cols;
}

std::vector<int> OwnersByCost(const std::vector<int64_t>& costs, int shards) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&costs](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<int64_t> load(static_cast<size_t>(shards));
  std::vector<int> owners(costs.size());
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += costs[i];
    owners[i] = static_cast<int>(least - load.begin());
  }
  return owners;
}

}  // namespace hearth::trainer
