#include "kernels/amax/amax.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {

constexpr char kOp[] = "amax";

absl::Status CanImplement(const AmaxArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  if (args.amax == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": amax is null"));
  }
  return absl::OkStatus();
}

size_t AmaxWorkspaceBytes(const AmaxArgs& args) {
  return cpu::AmaxWorkspaceBytes(args);
}

absl::Status Amax(const Exec& exec, const AmaxArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, AmaxWorkspaceBytes(args), kOp));
  return RunOnDevice<cpu::Amax, cuda::Amax>(exec, kOp, args);
}

}  // namespace hearth::kernels
