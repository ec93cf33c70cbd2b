// cuBLASLt, loaded at run time, and the plans of the products that have been asked for.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/exec.h"
#include "kernels/cuda/context.h"
#include "kernels/gemm/gemm.h"

namespace hearth::kernels {

// Used by one thread at a time.
class GemmPlans {
 public:
  // Loads cuBLASLt and the plan file. kUnavailable: no cuBLASLt 13.
  static absl::StatusOr<std::unique_ptr<GemmPlans>> New(const GpuProperties& gpu,
                                                        const CudaOptions& options);
  ~GemmPlans();

  // Runs `args` (checked by CanImplement) on the stream. The first call with a key that the plan
  // file does not know times the candidates on the operands given: it waits for the stream, and
  // writes c several times.
  absl::Status Run(const Exec& exec, const GemmArgs& args);
  // Writes the plan file if plans are new.
  absl::Status Save();
  // "13.1.0"
  std::string version() const;

 private:
  struct Impl;
  explicit GemmPlans(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::kernels
