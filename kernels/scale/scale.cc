#include "kernels/scale/scale.h"

#include "common/base/status_macros.h"

namespace hearth::kernels {

constexpr char kOp[] = "scale";

absl::Status CanImplement(const ScaleArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.y, args.x.dtype, args.x.numel(), kOp, "y"));
  return RequireRound(args.round, kOp);
}

absl::Status Scale(const Exec& exec, const ScaleArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  return RunOnDevice<cpu::Scale, cuda::Scale>(exec, kOp, args);
}

}  // namespace hearth::kernels
