// Addresses in shared memory as the instructions for it want them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace hearth::kernels::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace hearth::kernels::cuda
