// Every fault point of the programs. A name used in code but not listed here fails at the first use
// (when faults are on) and in tools/tidy.py (always).
#pragma once

#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace hearth::fault {

struct Point {
  std::string_view name;
  std::string_view where;  // what has already happened when it is reached
  bool by_step = false;    // reached by CheckStep
};

absl::Span<const Point> Points();

// For people: a line for each point, and before them what HEARTH_FAULTS may say.
std::string PointList();

}  // namespace hearth::fault
