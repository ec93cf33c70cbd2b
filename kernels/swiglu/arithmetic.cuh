// SwiGLU of one element, for every kernel that computes it: the same bits in all.
#pragma once

#include "kernels/cuda/sigmoid.cuh"

namespace hearth::kernels::cuda {

template <typename A>
__device__ __forceinline__ float SwigluOf(float gate, float up) {
  return gate * SigmoidFor<A>(gate) * up;
}

// The gradients of gate (x) and up (y).
template <typename A>
__device__ __forceinline__ float2 SwigluGradient(float gate, float up, float dy) {
  // (g s(g))' = s (1 + g (1 - s)), as s' = s (1 - s).
  const float sigmoid = SigmoidFor<A>(gate);
  return {dy * up * sigmoid * (1.0F + gate * (1.0F - sigmoid)), dy * gate * sigmoid};
}

}  // namespace hearth::kernels::cuda
