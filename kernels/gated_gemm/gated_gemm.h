// The two products around SwiGLU (swiglu/swiglu.h), each with it as one operation. What the
// activation reads or writes beside the product need not go through memory then: on Hopper kernels
// of our own apply it to the product's sums. Everything that these do not take runs as two calls,
// Gemm and SwigluForward or SwigluBackward, with their contracts.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"
#include "kernels/gemm/gemm.h"
#include "kernels/swiglu/swiglu.h"

namespace hearth::kernels {

// c = gate_up of the product, then y and its forms of it. product.c is activation.gate_up.
//   gate_up_read : whether anything reads gate_up afterwards. If not, its contents are undefined:
//                  backward may need it no more where the activation keeps it in 8 bits
// The forms of y may lie where the product's operands do; it runs as two calls then.
struct GatedGemmForwardArgs {
  GemmArgs product;
  SwigluForwardArgs activation;
  bool gate_up_read = true;
};

// dy = c of the product, then the gradient of gate_up. product.c is activation.dy, whose contents
// are undefined afterwards: the kernels of our own do not write it, and do not round it either.
// Forms may lie where the product's operands do, as forward.
struct GatedGemmBackwardArgs {
  GemmArgs product;
  SwigluBackwardArgs activation;
};

// Workspace: that of the product (GemmWorkspaceBytes). Errors: those of the two; kInvalidArgument
// if the tensor between them is not the same.
HEARTH_DECLARE_OP(GatedGemmForward, GatedGemmForwardArgs);
HEARTH_DECLARE_OP(GatedGemmBackward, GatedGemmBackwardArgs);

}  // namespace hearth::kernels
