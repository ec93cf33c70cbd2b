#include "kernels/draw_normal/draw_normal.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {

constexpr char kOp[] = "draw_normal";
constexpr uint64_t kElementsMax = uint64_t{1} << 34;  // of RngWord

absl::Status CanImplement(const DrawNormalArgs& args) {
  const auto count = static_cast<uint64_t>(args.y.numel());
  if (args.first_element > kElementsMax || count > kElementsMax - args.first_element) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": ", count, " elements from ", args.first_element, " on; there are ", kElementsMax));
  }
  if (!(args.stddev >= 0.0)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": stddev ", args.stddev, " is below 0"));
  }
  return absl::OkStatus();
}

absl::Status DrawNormal(const Exec& exec, const DrawNormalArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.y.dtype, kOp));
  return RunOnDevice<cpu::DrawNormal, cuda::DrawNormal>(exec, kOp, args);
}

}  // namespace hearth::kernels
