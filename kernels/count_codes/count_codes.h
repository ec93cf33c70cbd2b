// How many quantised values lie at either end of their format.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// counts[0] = elements whose magnitude is 0; counts[1] = elements whose magnitude is the format's
// largest, infinite or NaN. Overwritten. Exact, so bits are independent of exec.threads.
//   x      : kE4M3 or kE5M2, any shape     counts : two numbers beside x, 8-byte aligned; not null
// Errors: kInvalidArgument (dtype, null).
struct CountCodesArgs {
  TensorView x;
  uint64_t* counts = nullptr;
};

HEARTH_DECLARE_OP(CountCodes, CountCodesArgs);

// Code of the largest finite magnitude.
constexpr uint8_t LargestCode(DType dtype) {
  return dtype == DType::kE4M3 ? 0x7e : 0x7b;
}

}  // namespace hearth::kernels
