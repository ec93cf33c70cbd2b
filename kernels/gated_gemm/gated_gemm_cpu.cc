#include "common/base/status_macros.h"
#include "kernels/gated_gemm/gated_gemm.h"

namespace hearth::kernels::cpu {

absl::Status GatedGemmForward(const Exec& exec, const GatedGemmForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(kernels::Gemm(exec, args.product));
  return kernels::SwigluForward(exec, args.activation);
}

absl::Status GatedGemmBackward(const Exec& exec, const GatedGemmBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(kernels::Gemm(exec, args.product));
  return kernels::SwigluBackward(exec, args.activation);
}

}  // namespace hearth::kernels::cpu
