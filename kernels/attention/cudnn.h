// cuDNN's attention through its backend API, loaded at run time, and the plans that were asked for.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"
#include "kernels/core/exec.h"
#include "kernels/cuda/context.h"

namespace hearth::kernels {

// Used by one thread at a time.
class AttentionPlans {
 public:
  // Loads the newest cuDNN 9 there is; without one every call goes to the kernel of our own, and
  // cudnn_error() says why.
  static absl::StatusOr<std::unique_ptr<AttentionPlans>> New(const GpuProperties& gpu,
                                                             const CudaOptions& options);
  ~AttentionPlans();

  // kUnimplemented: cuDNN is not there or has no plan for these arguments; the caller then takes
  // the kernel of our own. The first call of a shape builds its plan (up to seconds, may allocate).
  absl::Status Forward(const Exec& exec, const AttentionForwardArgs& args);
  absl::Status Backward(const Exec& exec, const AttentionBackwardArgs& args);
  // Device scratch of those calls; 0 where cuDNN has no plan.
  size_t ForwardWorkspaceBytes(const AttentionForwardArgs& args);
  size_t BackwardWorkspaceBytes(const AttentionBackwardArgs& args);

  // Whether Forward or Backward would run them. The first call of a shape builds its plan.
  bool Takes(const AttentionForwardArgs& args);
  bool Takes(const AttentionBackwardArgs& args);
  // Not empty: calls with these AttentionArgs::documents are declined with this reason from now on.
  // Empty: they are not.
  void Refuse(int64_t documents, std::string why);

  // "9.19.0", empty without cuDNN.
  std::string version() const;
  std::string cudnn_error() const;

 private:
  struct Impl;
  explicit AttentionPlans(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::kernels
