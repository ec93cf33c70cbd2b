#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/sum_parts/sum_parts.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "sum_parts";
constexpr int64_t kGrain = 16384;

template <typename T>
absl::Status SumPartsImpl(const Exec& exec, const SumPartsArgs& args) {
  T* const out = args.out.as<T>();
  ParallelFor(exec, args.out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T sum = args.parts.front().template as<T>()[i];
      for (const TensorView& part : args.parts.subspan(1)) {
        sum += part.template as<T>()[i];
      }
      out[i] = sum;
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const SumPartsArgs& args) {
  if (args.parts.empty() || args.parts.size() > static_cast<size_t>(kMaxSumParts)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": ", args.parts.size(), " parts, 1 to ", kMaxSumParts, " are possible"));
  }
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.out, kOp, "out"));
  for (const TensorView& part : args.parts) {
    HEARTH_RETURN_IF_ERROR(RequireCount(part, args.out.dtype, args.out.numel(), kOp, "part"));
  }
  return absl::OkStatus();
}

size_t SumPartsWorkspaceBytes(const SumPartsArgs&) {
  return 0;
}

absl::Status SumParts(const Exec& exec, const SumPartsArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.out.dtype, kOp));
  HEARTH_RUN_ON_CUDA(exec, kOp, SumParts(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  return DispatchFloating(args.out.dtype,
                          [&]<typename T>() { return SumPartsImpl<T>(exec, args); });
}

}  // namespace hearth::kernels
