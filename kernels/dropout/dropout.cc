#include "kernels/dropout/dropout.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {

constexpr char kOp[] = "dropout";

absl::Status CanImplement(const DropoutArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.y, args.x.dtype, args.x.numel(), kOp, "y"));
  if (!args.residual.empty()) {
    HEARTH_RETURN_IF_ERROR(
        RequireCount(args.residual, args.x.dtype, args.x.numel(), kOp, "residual"));
  }
  if (!(args.p >= 0.0 && args.p < 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": p is ", args.p, ", not in [0, 1)"));
  }
  if (args.first_element % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": first_element ", args.first_element, " is not a multiple of 4"));
  }
  return RequireRound(args.round_y, kOp);
}

absl::Status DropoutForward(const Exec& exec, const DropoutArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  return RunOnDevice<cpu::DropoutForward, cuda::DropoutForward>(exec, kOp, args);
}

absl::Status DropoutBackward(const Exec& exec, const DropoutArgs& args) {
  if (!args.residual.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": residual must be absent in backward"));
  }
  return DropoutForward(exec, args);
}

}  // namespace hearth::kernels
