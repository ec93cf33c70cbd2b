// The levels of parallel.shard: what the ranks of a job divide among themselves instead of each
// holding all of it (ZeRO, Rajbhandari et al., arXiv 1910.02054).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// Each level divides what those before it do.
enum class ShardLevel : uint8_t {
  kOff,
  kOptimizer,  // masters and optimizer state (ZeRO-1)
  kGradients,  // and the gradients (ZeRO-2)
  kWeights,    // and the weights (ZeRO-3)
};

struct ShardRow {
  ShardLevel level = ShardLevel::kOff;
  std::string_view name;     // in the job file
  std::string_view divides;  // a phrase for people
  bool optimizer = false;    // masters and optimizer state are divided
  // A rank keeps the sums of its part of the gradients alone. Each micro-batch makes its gradients
  // in buffers that buckets use in turn, and the ranks sum them bucket by bucket.
  bool gradients = false;
  // A rank keeps its part of the weights alone. Each pass brings those of a layer together before
  // it reads them (plan/weight_units.h).
  bool weights = false;
};

// In the order of the levels. Rows live for ever.
absl::Span<const ShardRow> ShardRows();
const ShardRow& RowOf(ShardLevel level);

// Among how many ranks masters and optimizer state are divided: 1 or `world_size`.
int ShardsOf(ShardLevel level, int world_size);

// The values of parallel.shard: "auto" and the rows' names.
std::vector<std::string_view> ShardChoices();

// The levels that a job on so many ranks may run at, the preferred first: one that it names, or
// all. One rank divides nothing, and nobody a state of whole matrices (FindWholeState).
std::vector<ShardLevel> AllowedShardLevels(const v1::JobSpec& job, int world_size);

}  // namespace hearth::spec
