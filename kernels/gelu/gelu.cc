#include "kernels/gelu/gelu.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "gelu";

// What both directions share: the function, x, bias, the outputs.
absl::Status CheckViews(Activation kind,
                        const TensorView& x,
                        const TensorView& bias,
                        const TensorView& out,
                        const char* out_name,
                        const QuantView& quant,
                        const BlockQuantView& blocks,
                        DType round) {
  if (kind != Activation::kGelu && kind != Activation::kGeluTanh) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": kind is neither gelu nor gelu_tanh"));
  }
  HEARTH_RETURN_IF_ERROR(RequireFloating(x, kOp, "x"));
  HEARTH_RETURN_IF_ERROR(RequireQuant(quant, kOp));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(blocks, quant, x.rows(), x.cols(), 1, kOp));
  if (!out.empty() || (!quant.has_values() && blocks.empty())) {
    HEARTH_RETURN_IF_ERROR(RequireCount(out, x.dtype, x.numel(), kOp, out_name));
  }
  if (!bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(bias, x.dtype, x.cols(), kOp, "bias"));
  }
  return RequireRound(round, kOp);
}

}  // namespace

absl::Status CanImplement(const GeluForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireKept(args.keep, args.kept, args.y_quant, args.x.cols(), kOp));
  return CheckViews(args.kind, args.x, args.bias, args.y, "y", args.y_quant, args.y_blocks,
                    args.round_y);
}

absl::Status GeluForward(const Exec& exec, const GeluForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(exec, args.x.dtype, args.has_forms(), kOp));
  return RunOnDevice<cpu::GeluForward, cuda::GeluForward>(exec, kOp, args);
}

absl::Status CanImplement(const GeluBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckViews(args.kind, args.x, args.bias, args.dx, "dx", args.dx_quant,
                                    args.dx_blocks, args.round_dx));
  HEARTH_RETURN_IF_ERROR(RequireKept({}, args.kept, args.dx_quant, args.x.cols(), kOp));
  return RequireCount(args.dy, args.x.dtype, args.x.numel(), kOp, "dy");
}

absl::Status GeluBackward(const Exec& exec, const GeluBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(
      exec, args.x.dtype, !args.dx_quant.empty() || !args.dx_blocks.empty() || !args.kept.empty(),
      kOp));
  return RunOnDevice<cpu::GeluBackward, cuda::GeluBackward>(exec, kOp, args);
}

}  // namespace hearth::kernels
