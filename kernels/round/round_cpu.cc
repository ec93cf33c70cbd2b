#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/formats/span.h"
#include "kernels/round/round.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "round";
constexpr int64_t kGrain = 16384;

bool Representable(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 ||
         dtype == DType::kF16 || dtype == DType::kE4M3 || dtype == DType::kE5M2;
}

char* Byte(const TensorView& view, int64_t element) {
  return view.as<char>() + DTypeBytes(view.dtype, element);
}

template <typename T>
absl::Status RoundImpl(const Exec& exec, const RoundToArgs& args) {
  ParallelFor(exec, args.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const T* x = args.x.as<T>() + begin;
    if (args.y.dtype != args.x.dtype) {
      EncodeSpan(x, end - begin, args.to, Byte(args.y, begin));
      return;
    }
    T* y = args.y.as<T>() + begin;
    if (x != y) {
      std::copy_n(x, end - begin, y);
    }
    RoundSpan(y, end - begin, args.to);
  });
  return absl::OkStatus();
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

size_t RoundToWorkspaceBytes(const RoundToArgs&) {
  return 0;
}

absl::Status RoundTo(const Exec& exec, const RoundToArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  HEARTH_RUN_ON_CUDA(exec, kOp, RoundTo(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return RoundImpl<T>(exec, args); });
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

size_t WidenWorkspaceBytes(const WidenArgs&) {
  return 0;
}

absl::Status Widen(const Exec& exec, const WidenArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.y.dtype, "widen"));
  HEARTH_RUN_ON_CUDA(exec, "widen", Widen(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, "widen"));
  return DispatchFloating(args.y.dtype, [&]<typename T>() {
    ParallelFor(exec, args.y.numel(), kGrain, [&](int64_t begin, int64_t end) {
      DecodeSpan(Byte(args.x, begin), end - begin, args.x.dtype, args.y.as<T>() + begin);
    });
    return absl::OkStatus();
  });
}

}  // namespace hearth::kernels
