#include "kernels/harness/cases.h"

#include <iterator>

namespace hearth::kernels::harness {

std::vector<OpCase> AllCases() {
  using Table = std::vector<OpCase> (*)();
#define HEARTH_CASES(op, Op) Op##Cases,
  constexpr Table kTables[] = {HEARTH_OPS(HEARTH_CASES)};
#undef HEARTH_CASES
  std::vector<OpCase> all;
  for (Table table : kTables) {
    std::vector<OpCase> cases = table();
    std::move(cases.begin(), cases.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace hearth::kernels::harness
