// A recipe row in the terms of the kernels: to which format each kind of value is rounded on this
// device.
#pragma once

#include "absl/status/statusor.h"
#include "common/spec/recipe.h"
#include "kernels/core/dtype.h"

namespace hearth::trainer {

// Storage is wide (fp32, or fp64 for gradient checks); a narrower format is emulated by rounding
// every value that real storage would round. A format equal to the storage means no rounding.
struct Numerics {
  kernels::DType storage = kernels::DType::kF32;  // of every floating buffer
  kernels::DType weight = kernels::DType::kF32;   // working weights
  kernels::DType activation =
      kernels::DType::kF32;  // residual stream, norms, attention and what backward saves
  kernels::DType fprop = kernels::DType::kF32;     // output of y = x wT
  kernels::DType dgrad = kernels::DType::kF32;     // output of dx = dy w
  kernels::DType gradient = kernels::DType::kF32;  // accumulated weight gradients
  kernels::DType head = kernels::DType::kF32;      // logits and their gradient
};

// `gradient` is the resolved gradients.dtype. kUnimplemented: an operand format narrower than the
// activations, which needs a quantised GEMM that this device does not have; the text names the
// recipe and the operand.
absl::StatusOr<Numerics> MakeNumerics(const spec::Recipe& recipe,
                                      spec::DType gradient,
                                      kernels::DType storage);

}  // namespace hearth::trainer
