// A fault on purpose: what a broken kernel does to a process, for tests of what follows from it.
#include "kernels/cuda/device.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels {
namespace {

__global__ void WriteNowhere(int* nowhere) {
  *nowhere = 1;
}

}  // namespace

absl::Status ProvokeIllegalAccess(const Exec& exec) {
  // An address near null and not null itself, which a compiler may see through.
  WriteNowhere<<<1, 1, 0, cuda::StreamOf(exec)>>>(reinterpret_cast<int*>(uintptr_t{64}));
  return HEARTH_CUDA_LAUNCHED("provoke");
}

}  // namespace hearth::kernels
