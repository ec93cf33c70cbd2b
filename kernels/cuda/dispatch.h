// From an op's door to its CUDA version.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

// Returns cuda::call if `exec` names a GPU. `call` is that function's name with its arguments.
#ifdef HEARTH_WITH_CUDA
#define HEARTH_RUN_ON_CUDA(exec, op, call)                                     \
  if ((exec).device == ::hearth::kernels::Device::kCuda) {                     \
    const absl::Status hearth_cuda = ::hearth::kernels::RequireCuda(exec, op); \
    return hearth_cuda.ok() ? cuda::call : hearth_cuda;                        \
  }                                                                            \
  static_assert(true)
#else
#define HEARTH_RUN_ON_CUDA(exec, op, call)                 \
  if ((exec).device == ::hearth::kernels::Device::kCuda) { \
    return ::hearth::kernels::RequireCuda(exec, op);       \
  }                                                        \
  static_assert(true)
#endif
