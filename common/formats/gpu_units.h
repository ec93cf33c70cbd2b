// Which matrix units GPUs have, by compute capability. Nothing else knows them by their numbers.
// C++17. `compute` is the compute capability times ten: 90 is 9.0.
#pragma once

#include "common/formats/block_layout.h"

namespace hearth::formats {

// Units that multiply FP8 with one scale for a tensor.
constexpr bool HasFp8Units(int compute) {
  return compute >= 89;
}

// Units that multiply blocks with a scale each: those of 10.x and 12.x, blocks of 16 and 32.
constexpr bool HasBlockUnits(int compute) {
  return compute / 10 == 10 || compute / 10 == 12;
}
constexpr bool HasBlockUnits(int compute, const BlockLayoutRow& row) {
  return HasBlockUnits(compute) && row.length <= 32;
}

// FP8 with one scale for a tensor is multiplied in the block-scaled units, with scales of 1: on
// sm_120 plain FP8 runs at half their rate.
constexpr bool MultipliesFp8InBlockUnits(int compute) {
  return compute / 10 == 12;
}

// Products that block-scaled units compute: of operands in one layout of blocks, or of plain FP8.
struct UnitProducts {
  const BlockLayoutRow* layout =
      nullptr;  // null: plain FP8, in the layout of MXFP8 with scales of 1

  constexpr const char* name() const { return layout == nullptr ? "fp8" : layout->name; }
  // Whether GPUs of this capability have units that such products should run on.
  constexpr bool SuitUnitsOf(int compute) const {
    return layout == nullptr ? MultipliesFp8InBlockUnits(compute) : HasBlockUnits(compute);
  }
};
constexpr bool operator==(const UnitProducts& a, const UnitProducts& b) {
  return a.layout == b.layout;
}

}  // namespace hearth::formats
