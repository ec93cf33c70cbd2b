// Largest magnitude of a tensor.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

// *amax = max(|x|), 0 for no elements; NaN if any element is NaN. Exact, so bits are independent of
// exec.threads.
//   x : kF32 or kF64 on the CPU, A on CUDA     amax : beside x; not null
// Workspace (CPU): one double per block of 65536 elements.
struct AmaxArgs {
  TensorView x;
  float* amax = nullptr;
};

size_t AmaxWorkspaceBytes(const AmaxArgs& args);
HEARTH_DECLARE_OP(Amax, AmaxArgs);

namespace cpu {
size_t AmaxWorkspaceBytes(const AmaxArgs& args);
}  // namespace cpu

}  // namespace hearth::kernels
