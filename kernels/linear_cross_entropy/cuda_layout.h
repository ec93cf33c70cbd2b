// How the CUDA version of the head cuts the tokens of a call and its workspace.
#pragma once

#include "common/formats/head_layout.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace hearth::kernels::cuda {

using formats::HeadLayout;

inline formats::HeadShape HeadShapeOf(const LinearCrossEntropyArgs& args) {
  formats::HeadShape shape;
  shape.tokens = args.hidden.rows();
  shape.padded = args.weight.rows();
  shape.dtype = args.hidden.dtype;
  shape.fp8_gradient = !args.quant.empty() && !(args.d_hidden.empty() && args.d_weight.empty());
  shape.chunk = args.chunk;
  return shape;
}

inline HeadLayout HeadLayoutOf(const LinearCrossEntropyArgs& args) {
  return formats::HeadLayoutOf(HeadShapeOf(args));
}

}  // namespace hearth::kernels::cuda
