#include "worker/trainer/data/permutation.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

TEST(Permute, AnySize_IsABijection) {
  for (const uint64_t n : {1u, 2u, 3u, 4u, 5u, 16u, 17u, 63u, 64u, 65u, 1000u, 4097u, 70000u}) {
    for (const uint64_t key : {0u, 1u, 12345u}) {
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t j = Permute(i, n, key);
        ASSERT_LT(j, n);
        ASSERT_FALSE(seen[j]) << n << " " << key << " " << i;
        seen[j] = true;
      }
    }
  }
}

TEST(Permute, DifferentKeys_DifferentOrders) {
  const uint64_t n = 10000;
  uint64_t same_key = 0;
  uint64_t fixed = 0;
  uint64_t neighbours = 0;
  for (uint64_t i = 0; i < n; ++i) {
    same_key += Permute(i, n, 1) == Permute(i, n, 2);
    fixed += Permute(i, n, 1) == i;
    neighbours += i > 0 && Permute(i, n, 1) == Permute(i - 1, n, 1) + 1;
  }
  // A random permutation expects 1 of each.
  EXPECT_LE(same_key, 8u);
  EXPECT_LE(fixed, 8u);
  EXPECT_LE(neighbours, 8u);
}

TEST(Permute, LargeSizes_StayInside) {
  const uint64_t n = (uint64_t{1} << 40) + 7;
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(Permute(n - 1 - i, n, 3), n);
  }
}

TEST(Permute, KnownValues_DoNotChange) {
  // A change here reshuffles every dataset: checkpoints could not be resumed exactly.
  const std::vector<uint64_t> expected = {Permute(0, 1000, 42), Permute(1, 1000, 42),
                                          Permute(2, 1000, 42), Permute(999, 1000, 42)};
  EXPECT_EQ(expected, (std::vector<uint64_t>{733, 55, 700, 839}));
}

}  // namespace
}  // namespace hearth::trainer
