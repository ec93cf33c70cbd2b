// Launches that GPUs of compute capability 9.0 and later know.
//
// A kernel launched with EarlyStart begins while the kernel before it in the stream still runs, as
// soon as all blocks of that one have called LetNextBegin or ended. Until it calls WaitForPrevious
// it may read only what kernels before that one have written, and write nothing. At least one
// thread of it must call WaitForPrevious, so that it does not end before the other. The kernel
// before must not have been started early itself.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

// Changes nothing where the next kernel is launched in the ordinary way.
__device__ __forceinline__ void LetNextBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the kernel before has ended and what it has written can be read.
__device__ __forceinline__ void WaitForPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether the code of `kernel` that runs knows clusters and WaitForPrevious. Code made for an older
// GPU does not, whatever GPU it runs on.
template <typename Kernel>
absl::StatusOr<bool> MadeForHopper(Kernel kernel) {
  cudaFuncAttributes code;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncGetAttributes(&code, kernel));
  return code.ptxVersion >= 90;
}

inline cudaLaunchAttribute EarlyStart() {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  return early;
}

}  // namespace hearth::kernels::cuda
