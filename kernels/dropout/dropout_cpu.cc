#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/dropout/dropout.h"
#include "kernels/formats/span.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "dropout";
constexpr int64_t kGrain = 8192;

template <typename T>
absl::Status Impl(const Exec& exec, const DropoutArgs& args) {
  const T* x = args.x.as<T>();
  const T* residual = args.residual.as<T>();
  T* y = args.y.as<T>();
  const float p = static_cast<float>(args.p);
  const T scale = static_cast<T>(1.0 / (1.0 - args.p));
  ParallelFor(exec, args.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 4) {
      const auto words = RngBlock(args.key, (args.first_element + static_cast<uint64_t>(i)) / 4);
      for (int64_t j = i; j < std::min(i + 4, end); ++j) {
        const float uniform = static_cast<float>(words[static_cast<size_t>(j - i)] >> 8) * 0x1p-24F;
        const T kept = uniform >= p ? x[j] * scale : T{0};
        y[j] = residual == nullptr ? kept : residual[j] + kept;
      }
    }
    RoundSpan(y + begin, end - begin, args.round_y);
  });
  return absl::OkStatus();
}

}  // namespace

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

size_t DropoutWorkspaceBytes(const DropoutArgs&) {
  return 0;
}

absl::Status DropoutForward(const Exec& exec, const DropoutArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return Impl<T>(exec, args); });
}

absl::Status DropoutBackward(const Exec& exec, const DropoutArgs& args) {
  if (!args.residual.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": residual must be absent in backward"));
  }
  return DropoutForward(exec, args);
}

}  // namespace hearth::kernels
