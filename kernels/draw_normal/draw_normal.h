// y[i] = mean + stddev * n(first_element + i) for elements below `end`, 0 for the others. n is the
// standard normal number of an element (RngNormal in core/rng.h): initial weights.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "kernels/core/door.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {

//   y      : kF32 or kF64 on the CPU, kF32 or kBF16 on CUDA; computed in double precision, rounded
//            to fp32 (kF64: not rounded) and then to y's type
//   stddev : >= 0; 0: no number is drawn, all elements are `mean`
//   first_element + count <= 2^34
// The bits are a function of key and element alone, the same on every CPU and GPU. Allocates
// nothing, waits for nothing. Errors: kInvalidArgument (dtype, range); kUnimplemented (a format
// that the device does not store).
struct DrawNormalArgs {
  TensorView y;
  RngKey key;
  uint64_t first_element = 0;
  uint64_t end = std::numeric_limits<uint64_t>::max();
  double mean = 0.0;
  double stddev = 1.0;
};

HEARTH_DECLARE_OP(DrawNormal, DrawNormalArgs);

}  // namespace hearth::kernels
