// From an op's public function to its CUDA version, for op_cpu.cc files.
#pragma once

#include "common/base/status_macros.h"
#include "kernels/core/exec.h"

// Returns cuda::call if `exec` names a GPU. `call` is that function's name with its arguments.
#ifdef HEARTH_WITH_CUDA
#define HEARTH_RUN_ON_CUDA(exec, op, call)                   \
  do {                                                       \
    if ((exec).device == ::hearth::kernels::Device::kCuda) { \
      HEARTH_RETURN_IF_ERROR(RequireCuda(exec, op));         \
      return cuda::call;                                     \
    }                                                        \
  } while (false)
#else
#define HEARTH_RUN_ON_CUDA(exec, op, call)                   \
  do {                                                       \
    if ((exec).device == ::hearth::kernels::Device::kCuda) { \
      return RequireCuda(exec, op);                          \
    }                                                        \
  } while (false)
#endif
