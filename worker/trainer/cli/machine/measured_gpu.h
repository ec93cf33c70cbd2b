// What NVML says about the GPU that is being measured.
#pragma once

#include <cstdint>
#include <memory>

#include "common/nvml/nvml.h"
#include "kernels/cuda/context.h"

namespace hearth::trainer {

struct MeasuredGpu {
  std::unique_ptr<nvml::Nvml> nvml;
  std::unique_ptr<nvml::Gpu> gpu;  // null: NVML is not there or does not know the GPU

  static MeasuredGpu Open(const kernels::CudaContext& cuda);
  // Memory of the GPU in use by this process where NVML tells, else in use at all; `otherwise`
  // where it tells nothing.
  int64_t OwnBytes(int64_t otherwise) const;
};

}  // namespace hearth::trainer
