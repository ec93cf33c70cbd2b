// Launches that GPUs of compute capability 9.0 and later know: a kernel that begins while the
// kernel before it in the stream still runs (programmatic dependent launch).
//
// LaunchInTurn launches a kernel so if the exec asks for it (Exec::early_start). It then begins as
// soon as every block of the kernel before has called LetNextBegin or has ended. What keeps that
// right, for kernels k1, k2, k3 of a stream of which k2 and k3 are launched with LaunchInTurn:
//   1. Every such kernel calls WaitForPrevious, in at least one thread of a block that does work;
//      it calls LetNextBegin only after that, or never. TakeTurn does both.
//   2. What the kernel before writes is read, and anything at all is written, only after
//      WaitForPrevious.
// griddepcontrol.wait waits until the kernel before has completed and its writes can be seen, and
// for no other. So rule 1 is what gives an order: k2 has not completed before one of its blocks has
// seen k1 complete, so that when k3 has waited for k2, k1 is complete, and so on to the first. It
// also says what k3 may read before it waits: k3 begins after a block of k2 has let it begin or has
// ended, having waited, and so after k1 was complete. All that k1 and kernels before it wrote is
// there then, but what k2 writes is not; the headers of ops say which views the kernel before must
// not write. Nothing is overwritten too soon: k3 writes after k2, and so everything before it, is
// complete.
// A kernel launched in the ordinary way, as those of libraries are, waits for all before it from
// its first instruction on. It keeps rule 1 with no call, and may call LetNextBegin at any time.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
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

// For a kernel launched with LaunchInTurn, before it reads what the kernel before may have written.
__device__ __forceinline__ void TakeTurn() {
  WaitForPrevious();
  LetNextBegin();
}

// The line of memory at `from` to the L2 cache: for what is read after TakeTurn, but known before.
__device__ __forceinline__ void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
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

struct TurnShape {
  dim3 grid;
  unsigned threads;
  size_t shared = 0;                               // dynamic shared memory of a block
  const cudaLaunchAttribute* attribute = nullptr;  // one more, or none
};

// `kernel` keeps the rules above. The one place that decides which launches begin early.
template <typename... Params, typename... Args>
absl::Status LaunchInTurn(const Exec& exec,
                          const char* op,
                          void (*kernel)(Params...),
                          const TurnShape& shape,
                          Args&&... args) {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared;
  config.stream = StreamOf(exec);
  config.attrs = attributes;
  if (shape.attribute != nullptr) {
    attributes[config.numAttrs++] = *shape.attribute;
  }
  if (exec.early_start) {
    HEARTH_ASSIGN_OR_RETURN(const bool waits, MadeForHopper(kernel));
    if (waits) {
      attributes[config.numAttrs++] = EarlyStart();
    }
  }
  HEARTH_CUDA_RETURN_IF_ERROR(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
  return HEARTH_CUDA_LAUNCHED(op);
}

}  // namespace hearth::kernels::cuda
