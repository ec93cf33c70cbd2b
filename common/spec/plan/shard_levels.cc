#include "common/spec/plan/shard_levels.h"

#include <cstddef>

#include "common/spec/fields/rows.h"
#include "common/spec/optimizer/optimizer_table.h"

namespace hearth::spec {
namespace {

constexpr ShardRow kRows[] = {
    {.level = ShardLevel::kOff, .name = "off", .divides = "each rank holds all"},
    {.level = ShardLevel::kOptimizer,
     .name = "optimizer",
     .divides = "masters and optimizer state are divided",
     .optimizer = true},
    {.level = ShardLevel::kGradients,
     .name = "gradients",
     .divides = "masters, optimizer state and gradients are divided",
     .optimizer = true,
     .gradients = true},
    {.level = ShardLevel::kWeights,
     .name = "weights",
     .divides = "masters, optimizer state, gradients and weights are divided",
     .optimizer = true,
     .gradients = true,
     .weights = true},
};

}  // namespace

absl::Span<const ShardRow> ShardRows() {
  return kRows;
}

const ShardRow& RowOf(ShardLevel level) {
  return kRows[static_cast<size_t>(level)];
}

int ShardsOf(ShardLevel level, int world_size) {
  return RowOf(level).optimizer ? world_size : 1;
}

std::vector<std::string_view> ShardChoices() {
  std::vector<std::string_view> names = {"auto"};
  for (const ShardRow& row : kRows) {
    names.push_back(row.name);
  }
  return names;
}

std::vector<ShardLevel> AllowedShardLevels(const v1::JobSpec& job, int world_size) {
  if (world_size <= 1 || FindWholeState(job.optimizer()) != nullptr) {
    return {ShardLevel::kOff};
  }
  // Jobs of older versions may be stored with a name that the level had then.
  const std::string_view name = ModernValue(
      RowOf(
          *v1::ParallelSpec::descriptor()->FindFieldByNumber(v1::ParallelSpec::kShardFieldNumber)),
      job.parallel().shard());
  std::vector<ShardLevel> all;
  for (const ShardRow& row : kRows) {
    if (row.name == name) {
      return {row.level};
    }
    all.push_back(row.level);
  }
  return all;
}

}  // namespace hearth::spec
