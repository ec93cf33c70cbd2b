#include "kernels/moving_average/moving_average.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "moving_average";

}  // namespace

absl::Status CanImplement(const MovingAverageArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.y, kOp, "y"));
  const DType x = args.x.dtype == DType::kBF16 ? DType::kBF16 : args.y.dtype;
  HEARTH_RETURN_IF_ERROR(RequireCount(args.x, x, args.y.numel(), kOp, "x"));
  if (!(args.decay > 0.0 && args.decay < 1.0) || (args.inputs == nullptr && args.step < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": decay ", args.decay, ", step ", args.step, ": decay must be in (0, 1), step >= 1"));
  }
  return absl::OkStatus();
}

absl::Status MovingAverage(const Exec& exec, const MovingAverageArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.y.dtype, kOp));
  return RunOnDevice<cpu::MovingAverage, cuda::MovingAverage>(exec, kOp, args);
}

}  // namespace hearth::kernels
