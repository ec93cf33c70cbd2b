// The logistic function, for activation functions.
#pragma once

#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

// 1 / (1 + e^-x) over the whole range; for bf16 with the approximations of the special function
// unit (absolute error below 1e-6; results below 2^-126 are 0).
template <typename A>
__device__ __forceinline__ float SigmoidFor(float x) {
  if constexpr (sizeof(A) == 2) {
    float e;
    float s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.4426950408889634F));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.0F + e));
    return s;
  } else {
    return 1.0F / (1.0F + expf(-x));
  }
}

}  // namespace hearth::kernels::cuda
