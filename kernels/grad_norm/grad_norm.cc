#include "kernels/grad_norm/grad_norm.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/grad_norm/clip.h"

namespace hearth::kernels {

constexpr char kOp[] = "grad_norm";

absl::Status CanImplement(const SumSquaresArgs& args) {
  for (const TensorView& tensor : args.tensors) {
    if (tensor.dtype != DType::kBF16 || tensor.empty()) {
      HEARTH_RETURN_IF_ERROR(RequireFloating(tensor, kOp, "tensors"));
    }
  }
  if (args.sum_squares == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": sum_squares is null"));
  }
  return absl::OkStatus();
}

size_t SumSquaresWorkspaceBytes(const SumSquaresArgs& args) {
  return cpu::SumSquaresWorkspaceBytes(args);
}

absl::Status SumSquares(const Exec& exec, const SumSquaresArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, SumSquaresWorkspaceBytes(args), kOp));
  return RunOnDevice<cpu::SumSquares, cuda::SumSquares>(exec, kOp, args);
}

float ClipFactor(double norm, double max_norm) {
  return ClipFactorOf(norm, max_norm);
}

}  // namespace hearth::kernels
