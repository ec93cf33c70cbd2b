// What activation functions have in common.
#pragma once

#include "kernels/core/block_quant.h"
#include "kernels/core/kept_input.h"
#include "kernels/core/tensor.h"

namespace hearth::kernels {

// What the forward pass of an activation function on N rows writes beside its result y [N, F], and
// what it keeps of its input for backward.
//   y        : [N, F], the input's type; may be absent if y_quant has values or there are y_blocks
//   round_y  : y and its forms are of values rounded to it
//   y_blocks : block-scaled forms of y, the bits that BlockQuantize (block_quantize.h) gives of it,
//              in the same pass; instead of y_quant, with what BlockQuantize asks of shapes. On
//              CUDA all views are aligned to 16 bytes then
//   keep     : the input for backward in 8 bits, in its shape; F is a multiple of 32, y_quant has
//              no columns. On CUDA all views are aligned to 16 bytes then
//   kept     : read instead of the input, which then gives only shape and type
struct ActivationOutputs {
  TensorView y;
  QuantView y_quant;
  DType round_y = DType::kF32;
  BlockQuantView y_blocks;
  KeptInput keep;
  KeptInput kept;

  // Whether a form that a GPU has only beside bf16 is read or written (RequireFormStorage).
  constexpr bool has_forms() const {
    return !y_quant.empty() || !y_blocks.empty() || !keep.empty() || !kept.empty();
  }
};

}  // namespace hearth::kernels
