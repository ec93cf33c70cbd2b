#include "kernels/quantize/quantize.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {

constexpr char kOp[] = "quantize";
constexpr char kScalesOp[] = "update_scales";
constexpr int64_t kMaxScales = 4096;
constexpr int64_t kTranspose = 16;  // rows and columns of transposed outputs are multiples of it

absl::Status CanImplement(const QuantizeArgs& args) {
  for (const QuantizeTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireFloating(tensor.x, kOp, "x"));
    HEARTH_RETURN_IF_ERROR(RequireQuant(tensor.quant, kOp));
    if (tensor.x.dtype != args.tensors[0].x.dtype) {
      return absl::InvalidArgumentError(absl::StrCat(
          kOp, ": x is ", DebugString(tensor.x), ", others are ", DebugString(args.tensors[0].x)));
    }
    if (tensor.quant.columns != nullptr &&
        (tensor.x.rows() % kTranspose != 0 || tensor.x.cols() % kTranspose != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          kOp, ": columns wanted of ", DebugString(tensor.x), ", not multiples of ", kTranspose));
    }
  }
  return absl::OkStatus();
}

absl::Status Quantize(const Exec& exec, const QuantizeArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  if (args.tensors.empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.tensors[0].x.dtype, kOp));
  return RunOnDevice<cpu::Quantize, cuda::Quantize>(exec, kOp, args);
}

absl::Status CanImplement(const UpdateScalesArgs& args) {
  if (args.n < 0 || args.n > kMaxScales || args.history < 0 ||
      static_cast<int64_t>(args.dtypes.size()) != args.n) {
    return absl::InvalidArgumentError(absl::StrCat(kScalesOp, ": ", args.n, " scales with ",
                                                   args.dtypes.size(), " formats, history ",
                                                   args.history));
  }
  if (args.n > 0 &&
      (args.amax == nullptr || args.scale == nullptr || args.scale_inverse == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(kScalesOp, ": amax or scales absent"));
  }
  if (args.history > 0 && (args.cursor == nullptr || (args.n > 0 && args.ring == nullptr))) {
    return absl::InvalidArgumentError(absl::StrCat(kScalesOp, ": history without ring or cursor"));
  }
  for (DType dtype : args.dtypes) {
    if (dtype != DType::kE4M3 && dtype != DType::kE5M2) {
      return absl::InvalidArgumentError(absl::StrCat(kScalesOp, ": a format that is not FP8"));
    }
  }
  return absl::OkStatus();
}

absl::Status UpdateScales(const Exec& exec, const UpdateScalesArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  return RunOnDevice<cpu::UpdateScales, cuda::UpdateScales>(exec, kScalesOp, args);
}

}  // namespace hearth::kernels
