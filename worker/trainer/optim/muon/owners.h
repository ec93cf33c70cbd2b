// Which rank orthogonalises which matrix.
#pragma once

#include <cstdint>
#include <vector>

namespace hearth::trainer {

// m^2 n with m <= n: what the products of a matrix cost, up to a factor that hardly depends on its
// shape.
int64_t OrthogonalCost(int64_t rows, int64_t cols);

// The rank of each matrix by its cost: the costliest first, each to the rank that has least to do.
// The same on every rank. shards >= 1.
std::vector<int> OwnersByCost(const std::vector<int64_t>& costs, int shards);

}  // namespace hearth::trainer
