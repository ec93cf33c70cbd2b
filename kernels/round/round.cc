#include "kernels/round/round.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "round";

bool Representable(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 ||
         dtype == DType::kF16 || dtype == DType::kE4M3 || dtype == DType::kE5M2;
}

}  // namespace

absl::Status CanImplement(const RoundToArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  if (!Representable(args.to)) {
    const std::string_view name = DTypeName(args.to);
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": no rounding to ", absl::string_view(name.data(), name.size())));
  }
  if (args.y.dtype != args.x.dtype) {
    return RequireCount(args.y, args.to, args.x.numel(), kOp, "y");
  }
  return RequireCount(args.y, args.x.dtype, args.x.numel(), kOp, "y");
}

absl::Status RoundTo(const Exec& exec, const RoundToArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  return RunOnDevice<cpu::RoundTo, cuda::RoundTo>(exec, kOp, args);
}

absl::Status CanImplement(const WidenArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.y, "widen", "y"));
  if (!Representable(args.x.dtype)) {
    return absl::UnimplementedError(absl::StrCat("widen: x is ", DebugString(args.x)));
  }
  if (args.y.dtype == DType::kBF16 && args.x.dtype != DType::kBF16 &&
      DTypeBits(args.x.dtype) != 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("widen: y is ", DebugString(args.y), ", x is ", DebugString(args.x)));
  }
  return RequireCount(args.x, args.x.dtype, args.y.numel(), "widen", "x");
}

absl::Status Widen(const Exec& exec, const WidenArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.y.dtype, "widen"));
  return RunOnDevice<cpu::Widen, cuda::Widen>(exec, "widen", args);
}

}  // namespace hearth::kernels
