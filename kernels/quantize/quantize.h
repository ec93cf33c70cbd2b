// Per-tensor FP8: quantised copies of tensors, and the scales they are made with.
// T = kF32 on the CPU, A on CUDA (core/exec.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// One tensor and its quantised outputs (QuantView says what they hold). R and C are multiples of 16
// where columns are wanted.
//   x : [R, C] T
struct QuantizeTensor {
  TensorView x;
  QuantView quant;
};

// Writes the quantised outputs of every tensor; where only amax is wanted, only that.
//   counter : optional, one uint64 on the tensors' device, raised by the number of tensors whose
//             values were written, by the kernel that writes them
//   skip    : optional, one int32 on the tensors' device: if it is not 0 nothing is written at all
// Bits independent of exec.threads and equal on CPU and CUDA.
// Errors: kInvalidArgument (shape, dtype).
struct QuantizeArgs {
  absl::Span<const QuantizeTensor> tensors;
  uint64_t* counter = nullptr;
  const int32_t* skip = nullptr;
};

HEARTH_DECLARE_OP(Quantize, QuantizeArgs);

// How the scales of a range of tensors follow from their largest magnitudes.
//   history = 0: current scaling. amax is this tensor's own.
//   history = H: delayed scaling. amax enters the ring at slot `*cursor % H`; the largest of the
//                ring counts; then amax is zeroed. TransformerEngine's "max" algorithm.
//   scale = largest value of the format / largest magnitude; a magnitude of 0, infinity or NaN
//   leaves the scale as it is; at most FLT_MAX. scale_inverse = 1 / scale.
//   amax, scale : [n] f32                        ring : [H, n] f32, zeros at first
//   scale_inverse : [n, kScaleInverseStride] f32, of which the first of each row is written: a
//                   16-byte boundary for each, because cuBLASLt 13 refuses others
//   dtypes : n entries in HOST memory on every device (fixed for a run), kE4M3 or kE5M2
//   cursor : one int64 on the tensors' device, number of updates made; advanced by one. Required
//            with history > 0
//   skip   : as above; with it nothing changes but that amax is zeroed (history > 0)
// n <= 4096. Errors: kInvalidArgument.
inline constexpr int64_t kScaleInverseStride = 4;

struct UpdateScalesArgs {
  int64_t n = 0;
  int64_t history = 0;
  float* amax = nullptr;
  float* ring = nullptr;
  float* scale = nullptr;
  float* scale_inverse = nullptr;
  absl::Span<const DType> dtypes;
  int64_t* cursor = nullptr;
  const int32_t* skip = nullptr;
};

HEARTH_DECLARE_OP(UpdateScales, UpdateScalesArgs);

}  // namespace hearth::kernels
