// What the doors of norm.h hand to the CPU and CUDA versions: arguments that have been checked.
#pragma once

#include "kernels/core/door.h"
#include "kernels/norm/norm.h"

namespace hearth::kernels {

// One call of either norm. LayerNorm is centred: it takes the row's mean off, and has a mean and a
// bias; the views of RMSNorm's are empty.
struct NormForwardCall {
  const char* op;  // "rmsnorm" or "layernorm"
  bool centred;
  const NormForwardArgs& args;
  TensorView bias;
  TensorView mean;
};
struct NormBackwardCall {
  const char* op;
  bool centred;
  const NormBackwardArgs& args;
  TensorView mean;
  TensorView d_bias;
};

HEARTH_DECLARE_VERSIONS(NormForward, const NormForwardCall& call);
HEARTH_DECLARE_VERSIONS(NormBackward, const NormBackwardCall& call);

}  // namespace hearth::kernels
