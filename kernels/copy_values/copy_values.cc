#include "kernels/copy_values/copy_values.h"

#include "common/base/status_macros.h"

namespace hearth::kernels {

constexpr char kOp[] = "copy_values";

absl::Status CanImplement(const CopyValuesArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  return RequireCount(args.y, args.x.dtype, args.x.numel(), kOp, "y");
}

absl::Status CopyValues(const Exec& exec, const CopyValuesArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  return RunOnDevice<cpu::CopyValues, cuda::CopyValues>(exec, kOp, args);
}

}  // namespace hearth::kernels
