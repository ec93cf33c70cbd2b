// CUDA runtime errors as statuses. For files of the CUDA backend only.
#pragma once

#include <cuda_runtime.h>

#include "absl/status/status.h"

namespace hearth::kernels {

// OK, or kInternal "what: cudaErrorName: text"; kResourceExhausted for memory.
absl::Status CudaStatus(cudaError_t error, const char* what);

}  // namespace hearth::kernels

// The only way to call the CUDA runtime from host code.
#define HEARTH_CUDA_RETURN_IF_ERROR(call)                                                 \
  do {                                                                                    \
    if (const cudaError_t hearth_cuda_error = (call); hearth_cuda_error != cudaSuccess) { \
      return ::hearth::kernels::CudaStatus(hearth_cuda_error, #call);                     \
    }                                                                                     \
  } while (false)

// The status of a kernel launch: its configuration errors. Faults while it runs appear at a later
// call. return HEARTH_CUDA_LAUNCHED(kOp);
#define HEARTH_CUDA_LAUNCHED(op) ::hearth::kernels::CudaStatus(cudaGetLastError(), op)
