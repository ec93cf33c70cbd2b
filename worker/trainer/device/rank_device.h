// Opens the device of a rank and says how much of its memory a plan may take.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "kernels/cuda/context.h"
#include "worker/trainer/device/tuned_plan_paths.h"

namespace hearth::trainer {

// The GPU that `device` ("cuda:0") names. `plans`: none for FindTunedPlanPaths(). kInvalidArgument:
// no such name, or as FindTunedPlanPaths says; else CudaContext::Open.
absl::StatusOr<std::unique_ptr<kernels::CudaContext>> OpenGpu(
    std::string_view device,
    bool deterministic,
    const std::optional<TunedPlanPaths>& plans = std::nullopt);

// Bytes a rank of `world_size` may plan with on a GPU: spec::PlannableBytesNow of it, and no more
// than of a GPU of HEARTH_MEMORY_BYTES if that is set.
absl::StatusOr<int64_t> GpuMemoryBytes(kernels::CudaContext& context, int world_size);

// What no plan of a rank of `world_size` can exceed, even if nobody else used the device's memory.
// A GPU: spec::PlannableBytes of all of it, and no more than of HEARTH_MEMORY_BYTES; null, the CPU:
// HEARTH_MEMORY_BYTES if set, else the machine's memory and swap.
absl::StatusOr<int64_t> WholeMemoryBytes(kernels::CudaContext* context, int world_size);

// Bytes of the host's memory that a rank of `world_size` may pin: its share of AvailableMemory, as
// many ranks may be on this machine as it shows GPUs. Holds for ranks that all ask before any of
// them pins.
int64_t HostMemoryBytes(Env& env, int world_size);

// kResourceExhausted, marked: a rank needs more than WholeMemoryBytes of its GPU, so that the job
// can only run on a larger one. Annotate() keeps the mark.
absl::Status DeviceTooSmallError(const std::string& text);
bool IsDeviceTooSmall(const absl::Status& status);

// Bytes a rank may plan with on the CPU: HEARTH_MEMORY_BYTES if set, else half of what the machine
// has available, shared among `ranks` that may all be on it.
int64_t CpuMemoryBytes(int ranks);

}  // namespace hearth::trainer
