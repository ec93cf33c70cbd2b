// Rounds values to a narrower format: emulated (storage stays wide) or into real storage.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// y = round_to(x), to nearest, ties to even; FP8 saturates, BF16 and FP16 overflow to infinity.
//   x : kF32 or kF64 on the CPU, A on CUDA
//   y : either x's dtype (emulated: holds values representable in `to`; may alias x), or `to`
//       itself (packed storage, e.g. a BF16 checkpoint); not kF64 on CUDA
//   to: kBF16, kF16, kE4M3, kE5M2 (kF32, kF64: a copy or plain conversion)
// kF64 input is first rounded to kF32.
// Bits independent of exec.threads. Errors: kInvalidArgument (shape, dtype); kUnimplemented (to).
struct RoundToArgs {
  TensorView x;
  TensorView y;
  DType to = DType::kBF16;
};

HEARTH_DECLARE_OP(RoundTo, RoundToArgs);

// y = x widened: x in kBF16, kF16, kE4M3, kE5M2, kF32 or kF64; y in kF32 or kF64 on the CPU, and
// on CUDA, where neither is kF64, also in kBF16 for an x that it holds exactly. No aliasing.
struct WidenArgs {
  TensorView x;
  TensorView y;
};

HEARTH_DECLARE_OP(Widen, WidenArgs);

}  // namespace hearth::kernels
