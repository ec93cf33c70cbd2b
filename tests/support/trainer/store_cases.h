// Formats of weights.store with each optimizer; parameters of tests.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/weights/weight_store.h"

namespace hearth::trainer {

struct StoreCase {
  std::string optimizer;
  std::string store;
};

inline void PrintTo(const StoreCase& row, std::ostream* out) {
  *out << row.optimizer << ", " << row.store;
}

// Names of the formats in blocks that can be trained.
inline std::vector<std::string> BlockStores() {
  std::vector<std::string> names;
  for (const spec::WeightStoreRow& row : spec::WeightStoreRows()) {
    if (row.in_blocks()) {
      names.emplace_back(row.name);
    }
  }
  return names;
}

inline std::vector<StoreCase> StoreCases() {
  std::vector<StoreCase> cases;
  for (const spec::OptimizerRow& optimizer : spec::Optimizers()) {
    for (const std::string& store : BlockStores()) {
      cases.push_back({std::string(optimizer.name), store});
    }
  }
  return cases;
}

}  // namespace hearth::trainer
