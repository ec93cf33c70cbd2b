// Levels of parallel.shard by a property of their rows, so that a test covers a level that is added
// later.
#pragma once

#include <string>
#include <vector>

#include "common/spec/plan/shard_levels.h"

namespace hearth::trainer {

// Names of the rows that fit, in the table's order.
inline std::vector<std::string> ShardsWhere(bool (*fits)(const spec::ShardRow& row)) {
  std::vector<std::string> names;
  for (const spec::ShardRow& row : spec::ShardRows()) {
    if (fits(row)) {
      names.emplace_back(row.name);
    }
  }
  return names;
}

inline std::vector<std::string> AllShards() {
  return ShardsWhere([](const spec::ShardRow&) { return true; });
}
// Those that divide something.
inline std::vector<std::string> DividingShards() {
  return ShardsWhere([](const spec::ShardRow& row) { return row.optimizer; });
}

}  // namespace hearth::trainer
