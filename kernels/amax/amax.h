// Largest magnitude of a tensor.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

// *amax = max(|x|), 0 for no elements; NaN if any element is NaN. Exact, so bits are independent of
// exec.threads.
//   x : T = kF32 or kF64     amax : host memory on the CPU; not null
// Workspace: one double per block of 65536 elements.
struct AmaxArgs {
  TensorView x;
  float* amax = nullptr;
};

absl::Status CanImplement(const AmaxArgs& args);
size_t AmaxWorkspaceBytes(const AmaxArgs& args);
absl::Status Amax(const Exec& exec, const AmaxArgs& args);

}  // namespace hearth::kernels
