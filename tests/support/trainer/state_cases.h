// Formats of optimizer state, of each optimizer that keeps its state so, with masters and without;
// parameters of tests.
#pragma once

#include <algorithm>
#include <ostream>
#include <string_view>
#include <vector>

#include "common/spec/optimizer/optimizer_table.h"

namespace hearth::trainer {

struct StateCase {
  std::string_view optimizer;
  std::string_view state;
  const char* master;
  bool needs_whole = false;  // some state is of whole matrices: neither divided nor streamed
};

inline void PrintTo(const StateCase& row, std::ostream* out) {
  *out << row.optimizer << ", state " << row.state << ", master " << row.master;
}

inline std::vector<StateCase> StateCases() {
  std::vector<StateCase> cases;
  for (const spec::OptimizerRow& optimizer : spec::Optimizers()) {
    for (const spec::StateFormatRow& format : spec::StateFormatRows()) {
      const bool keeps = std::all_of(optimizer.states.begin(), optimizer.states.end(),
                                     [](const spec::StateSpec& state) { return state.narrow; });
      const bool needs_whole = std::any_of(
          optimizer.states.begin(), optimizer.states.end(), [&](const spec::StateSpec& state) {
            return formats::RowOf(format.CodecOf(state.kind)).needs_whole();
          });
      for (const char* const master : {"fp32", "none"}) {
        if (keeps) {
          cases.push_back({optimizer.name, format.name, master, needs_whole});
        }
      }
    }
  }
  return cases;
}

// Those whose states may be cut anywhere.
inline std::vector<StateCase> DivisibleStateCases() {
  std::vector<StateCase> cases = StateCases();
  std::erase_if(cases, [](const StateCase& row) { return row.needs_whole; });
  return cases;
}

}  // namespace hearth::trainer
