#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/count_codes/count_codes.h"
#include "kernels/cuda/dispatch.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "count_codes";

}  // namespace

absl::Status CanImplement(const CountCodesArgs& args) {
  if (args.x.dtype != DType::kE4M3 && args.x.dtype != DType::kE5M2) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": x is not in an FP8 format"));
  }
  if (args.counts == nullptr || args.x.data == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": ", args.counts == nullptr ? "counts" : "x", " is null"));
  }
  return absl::OkStatus();
}

absl::Status CountCodes(const Exec& exec, const CountCodesArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RUN_ON_CUDA(exec, kOp, CountCodes(exec, args));
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  const uint8_t* x = args.x.as<uint8_t>();
  const int64_t n = args.x.numel();
  const uint8_t largest = LargestCode(args.x.dtype);
  uint64_t zeros = 0;
  uint64_t saturated = 0;
#pragma omp parallel for simd num_threads(exec.threads) reduction(+ : zeros, saturated)
  for (int64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<uint8_t>(x[i] & 0x7f);
    zeros += magnitude == 0 ? 1 : 0;
    saturated += magnitude >= largest ? 1 : 0;
  }
  args.counts[0] = zeros;
  args.counts[1] = saturated;
  return absl::OkStatus();
}

}  // namespace hearth::kernels
