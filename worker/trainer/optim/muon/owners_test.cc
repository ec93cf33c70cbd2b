#include "worker/trainer/optim/muon/owners.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

TEST(OrthogonalCostTest, IsTheSameEitherWayRound) {
  EXPECT_EQ(OrthogonalCost(768, 2048), int64_t{768} * 768 * 2048);
  EXPECT_EQ(OrthogonalCost(2048, 768), OrthogonalCost(768, 2048));
}

TEST(OwnersByCostTest, CostliestGoFirst_EachToTheRankWithLeastWork) {
  EXPECT_EQ(OwnersByCost({1, 8, 4, 4}, 2), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(OwnersByCost({5, 5, 5}, 4), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(OwnersByCost({7, 1, 9}, 1), (std::vector<int>{0, 0, 0}));
  EXPECT_TRUE(OwnersByCost({}, 3).empty());
}

struct Matrices {
  int64_t rows;
  int64_t cols;
  int64_t count;
};
const std::vector<Matrices> kModels[] = {
    {{768, 768, 24}, {192, 768, 24}, {768, 2048, 36}},        // hearth-112m
    {{1536, 1536, 56}, {256, 1536, 56}, {1536, 8960, 84}},    // Qwen2.5-1.5B
    {{4096, 4096, 64}, {1024, 4096, 64}, {4096, 14336, 96}},  // Llama-3-8B
};

// No rank has more to do than another by more than a matrix.
TEST(OwnersByCostTest, MatricesOfAModel_AreSharedEvenly) {
  for (const std::vector<Matrices>& model : kModels) {
    std::vector<int64_t> costs;
    for (const Matrices& row : model) {
      costs.insert(costs.end(), static_cast<size_t>(row.count), OrthogonalCost(row.rows, row.cols));
    }
    const int64_t largest = *std::max_element(costs.begin(), costs.end());
    for (const int shards : {1, 2, 3, 4, 8}) {
      const std::vector<int> owners = OwnersByCost(costs, shards);
      std::vector<int64_t> load(static_cast<size_t>(shards));
      for (size_t i = 0; i < costs.size(); ++i) {
        load[static_cast<size_t>(owners[i])] += costs[i];
      }
      const auto [least, most] = std::minmax_element(load.begin(), load.end());
      EXPECT_LE(*most - *least, largest) << model[0].rows << ", " << shards << " ranks";
      EXPECT_GT(*least, 0) << model[0].rows << ", " << shards << " ranks";
    }
  }
}

}  // namespace
}  // namespace hearth::trainer
