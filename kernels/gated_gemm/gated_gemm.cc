#include "kernels/gated_gemm/gated_gemm.h"

#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "gated_gemm";

absl::Status RequireSame(const TensorView& product, const TensorView& activation) {
  return product.data == activation.data && product.dtype == activation.dtype
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   "gated_gemm: the product does not write what the activation reads");
}

}  // namespace

absl::Status CanImplement(const GatedGemmForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args.product));
  HEARTH_RETURN_IF_ERROR(CanImplement(args.activation));
  return RequireSame(args.product.c, args.activation.gate_up);
}

absl::Status CanImplement(const GatedGemmBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args.product));
  HEARTH_RETURN_IF_ERROR(CanImplement(args.activation));
  return RequireSame(args.product.c, args.activation.dy);
}

absl::Status GatedGemmForward(const Exec& exec, const GatedGemmForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::GatedGemmForward, cuda::GatedGemmForward>(exec, kOp, args);
}

absl::Status GatedGemmBackward(const Exec& exec, const GatedGemmBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::GatedGemmBackward, cuda::GatedGemmBackward>(exec, kOp, args);
}

}  // namespace hearth::kernels
