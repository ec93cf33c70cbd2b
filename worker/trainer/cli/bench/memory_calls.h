// Kernels of a step that memory bounds, on buffers of their own that no cache holds: for `bench
// --calibrate`. Only on a GPU.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "kernels/core/exec.h"
#include "worker/trainer/cli/bench/kernel_meter.h"

namespace hearth::trainer {

// `exec` of Make... outlives the call.
struct MemoryCalls {
  DeviceTensors tensors;
  std::function<absl::Status()> call;
  double bytes = 0;  // read and written by a call, each value once a kernel
};

// A copy by a kernel, 1 GiB.
absl::StatusOr<MemoryCalls> MakeCopy(const kernels::Exec& exec);
// A copy so small that it is nothing but a kernel of a graph.
absl::StatusOr<MemoryCalls> MakeSmallestKernel(const kernels::Exec& exec);
// A copy of `times` 4 MiB, which the L2 cache holds. The time of one less its share of two is what
// a kernel that fills the GPU takes beside its bytes: the launch, and the ends of which some
// multiprocessors are idle.
absl::StatusOr<MemoryCalls> MakeCachedCopy(const kernels::Exec& exec, int64_t times);
// The norms and the activation function of a layer, both passes, in BF16.
absl::StatusOr<MemoryCalls> MakeLayerPasses(const kernels::Exec& exec);
// AdamW with FP32 masters, moments and gradients.
absl::StatusOr<MemoryCalls> MakeAdamW(const kernels::Exec& exec);

}  // namespace hearth::trainer
