#include "kernels/count_codes/count_codes.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {

constexpr char kOp[] = "count_codes";

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
  return RunOnDevice<cpu::CountCodes, cuda::CountCodes>(exec, kOp, args);
}

}  // namespace hearth::kernels
