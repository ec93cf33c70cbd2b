#include "kernels/scale/scale.h"

#include "common/base/status_macros.h"
#include "kernels/cuda/dispatch.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "scale";

}  // namespace

absl::Status CanImplement(const ScaleArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.y, args.x.dtype, args.x.numel(), kOp, "y"));
  return RequireRound(args.round, kOp);
}

size_t ScaleWorkspaceBytes(const ScaleArgs&) {
  return 0;
}

absl::Status Scale(const Exec& exec, const ScaleArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  HEARTH_RUN_ON_CUDA(exec, kOp, Scale(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  return cpu::Scale(exec, args);
}

}  // namespace hearth::kernels
