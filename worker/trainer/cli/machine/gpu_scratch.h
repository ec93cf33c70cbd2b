// A stream and scratch memory of a GPU, for measurements without an engine.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "kernels/core/exec.h"
#include "kernels/cuda/device.h"

namespace hearth::trainer {

class GpuScratch {
 public:
  // `context` outlives it.
  static absl::StatusOr<std::unique_ptr<GpuScratch>> New(kernels::CudaContext& context,
                                                         size_t bytes = size_t{128} << 20) {
    std::unique_ptr<GpuScratch> scratch(new GpuScratch());
    scratch->exec.device = kernels::Device::kCuda;
    scratch->exec.cuda = &context;
    HEARTH_ASSIGN_OR_RETURN(scratch->exec.stream, kernels::NewStream(context));
    HEARTH_ASSIGN_OR_RETURN(scratch->exec.workspace.data, kernels::AllocateDevice(context, bytes));
    scratch->exec.workspace.bytes = bytes;
    return scratch;
  }
  ~GpuScratch() {
    if (exec.workspace.data != nullptr) {
      kernels::FreeDevice(exec.workspace.data);
    }
    if (exec.stream != nullptr) {
      kernels::DeleteStream(exec.stream);
    }
  }
  GpuScratch(const GpuScratch&) = delete;
  GpuScratch& operator=(const GpuScratch&) = delete;
  kernels::Exec exec;

 private:
  GpuScratch() = default;
};

}  // namespace hearth::trainer
