// Block-scaled copies of tensors in every layout of common/formats/block_layout.h, and back.
// T = kF32 or kF64 on the CPU; on CUDA kBF16, and on the way back A (core/exec.h). Values are
// quantised as floats.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// One tensor and its block-scaled forms (core/block_quant.h says what they hold and how). A form
// whose values are wanted has a K (rows: C, columns: R) that is a multiple of 32 and of its
// `hadamard`. With columns, or square, R is a multiple of 16.
struct BlockQuantizeTensor {
  // [R, C] T, C a multiple of 16, 16-byte aligned.
  TensorView x;
  BlockQuantView quant;
};

// Writes every form that is wanted in one pass over x: tiles of 128 x 128 go through shared memory,
// and both forms, the magnitudes and the counts are made from there. NVFP4 in both directions reads
// 2 and writes 2 * 0.5625 bytes an element (bf16): 3.1 bytes are the floor.
//   tensors: all x of one T, all of one layout
//   counter: optional, one uint64 on the tensors' device, raised by the number of tensors of which
//            values were written, by the kernel that writes them
//   skip   : optional, one int32 on the tensors' device: if it is not 0 nothing is written at all
// Bits independent of exec.threads, of the grid, and equal on CPU and CUDA.
// Errors: kInvalidArgument (shape, dtype, alignment or a combination that is not defined, text says
// which); kUnimplemented (T on CUDA).
struct BlockQuantizeArgs {
  absl::Span<const BlockQuantizeTensor> tensors;
  const int32_t* skip = nullptr;
  uint64_t* counter = nullptr;
};

HEARTH_DECLARE_OP(BlockQuantize, BlockQuantizeArgs);

// For ops that write block forms of their output [R, C] T themselves, in the pass that computes it,
// with the bits of BlockQuantize.
// Whether `blocks` can be made of it: what BlockQuantize asks, no `quant` at the same time, and
// with several `parts` (C / parts columns each, as the gradients of gate and up) whole tiles each.
// Errors: kInvalidArgument, beginning with `op`.
absl::Status RequireBlocks(const BlockQuantView& blocks,
                           const QuantView& quant,
                           int64_t rows,
                           int64_t cols,
                           int64_t parts,
                           const char* op);
constexpr bool WholeBlockParts(int64_t cols, int64_t parts) {
  return parts == 1 || cols % (parts * 128) == 0;
}
// On the CPU: `compute` writes the plain output `out`, or if that is absent and blocks are wanted,
// a copy for the time of the call; then come its blocks. dtype: kF32 or kF64.
absl::Status ComputeWithBlocks(const Exec& exec,
                               const TensorView& out,
                               const BlockQuantView& blocks,
                               DType dtype,
                               int64_t rows,
                               int64_t cols,
                               absl::FunctionRef<absl::Status(const TensorView&)> compute);

// y[l, k] = value * block scale, rounded to y's type; tensor_scale is left to the products' alpha.
// In bf16 NVFP4 is exact (at most 6 significant bits), MXFP8 wherever 2^-133 <= |y| < 2^128.
//   x : a form [L, K]          y : [L, K] T, K a multiple of 32, 16-byte aligned
// Errors: kInvalidArgument.
struct BlockDequantizeArgs {
  BlockScaledView x;
  TensorView y;
};

HEARTH_DECLARE_OP(BlockDequantize, BlockDequantizeArgs);

// From what was measured to the `amax` of later calls: amax = measured * margin, or as it was if
// that is 0, infinite or NaN; measured = 0.
//   measured, amax : [n] f32, one for each form
//   margin : a power of two >= 1. 1 after a call that only measures (current scaling, two passes);
//            2 or more for the next step's (delayed scaling, one pass): growth within it saturates
//            nothing
//   skip   : optional, as above; with it only measured is zeroed
// Errors: kInvalidArgument.
struct UpdateBlockAmaxArgs {
  int64_t n = 0;
  float* measured = nullptr;
  float* amax = nullptr;
  float margin = 1.0F;
  const int32_t* skip = nullptr;
};

HEARTH_DECLARE_OP(UpdateBlockAmax, UpdateBlockAmaxArgs);

}  // namespace hearth::kernels
