#include "worker/trainer/cli/machine/measured_gpu.h"

#include <unistd.h>

#include <utility>
#include <vector>

namespace hearth::trainer {

MeasuredGpu MeasuredGpu::Open(const kernels::CudaContext& cuda) {
  MeasuredGpu measured;
  if (auto nvml = nvml::Nvml::Open(nvml::DefaultLibrary()); nvml.ok()) {
    measured.nvml = *std::move(nvml);
    if (auto gpu = measured.nvml->ByUuid(cuda.gpu().uuid); gpu.ok()) {
      measured.gpu = *std::move(gpu);
    }
  }
  return measured;
}

int64_t MeasuredGpu::OwnBytes(int64_t otherwise) const {
  if (gpu == nullptr) {
    return otherwise;
  }
  const absl::StatusOr<nvml::GpuSample> sample = gpu->Sample();
  if (!sample.ok()) {
    return otherwise;
  }
  for (const nvml::GpuProcess& process :
       sample->processes.value_or(std::vector<nvml::GpuProcess>())) {
    if (process.pid == getpid() && process.used_bytes.has_value()) {
      return *process.used_bytes;
    }
  }
  return sample->memory_used_bytes.value_or(otherwise);
}

}  // namespace hearth::trainer
