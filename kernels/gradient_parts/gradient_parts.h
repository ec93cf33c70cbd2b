// Gradients in E4M3 on their way between ranks, and their sums: what the format with blocks in
// common/formats/reduce_formats.h travels as. T = kF32 or kF64 on the CPU, A on CUDA
// (core/exec.h). Values are coded as floats.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// With s the largest magnitude of a block of kReduceBlock consecutive elements that is finite:
//   scale = the least power of two that is not below s / 448, at least 2^-127
//   code  = round_e4m3(x / scale), to nearest, ties to even; zeros keep their sign
//   NaN and infinities: the NaN 0x7F. They leave the scale of their block alone, so the other
//           elements are as without them
// An element is off by at most 1/16 of itself, or if it is below 2^-6 scale, by 2^-10 scale. What
// is not above 2^-10 scale becomes zero: that is less than 2^-17 of the block's largest. The scale
// follows the block, so no loss needs scaling: this holds down to blocks of 2^-118. Magnitudes from
// 248 * 2^120 (3.3e38) on are coded as 2^128, which is infinite in fp32.
//   x      : [n] T, n a multiple of kReduceBlock, 16-byte aligned
//   codes  : [m] kE4M3, m >= n a multiple of kReduceBlock, 16-byte aligned; zeros behind n
//   scales : [m / kReduceBlock] kE8M0
// Bits independent of exec.threads and equal on CPU and CUDA. Errors: kInvalidArgument (shape,
// dtype, alignment); kUnimplemented (T).
struct EncodePartsArgs {
  TensorView x;
  TensorView codes;
  TensorView scales;
};

HEARTH_DECLARE_OP(EncodeParts, EncodePartsArgs);

// y = round_bf16(sum over the parts of code * scale): fp32, from the first part to the last. A NaN
// among them makes the sum NaN, one beyond fp32 or bf16 makes it infinite.
//   codes  : [parts, m] kE4M3, m a multiple of kReduceBlock, 16-byte aligned
//   scales : [parts, m / kReduceBlock] kE8M0; scales of EncodeParts, at most 2^120
//   y      : [m] T, 16-byte aligned
// Bits independent of exec.threads and equal on CPU and CUDA, except those of a NaN. Errors as
// above.
struct SumPartsArgs {
  TensorView codes;
  TensorView scales;
  TensorView y;
};

HEARTH_DECLARE_OP(SumParts, SumPartsArgs);

}  // namespace hearth::kernels
