#include "kernels/swiglu/swiglu.h"

#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"

namespace hearth::kernels {

constexpr char kOp[] = "swiglu";

absl::Status CanImplement(const SwigluForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.gate_up, kOp, "gate_up"));
  const DType dtype = args.gate_up.dtype;
  const int64_t rows = args.gate_up.rows();
  const int64_t ffn = args.gate_up.cols() / 2;
  HEARTH_RETURN_IF_ERROR(RequireView(args.gate_up, dtype, {rows, 2 * ffn}, kOp, "gate_up"));
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.y_quant, kOp));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.y_blocks, args.y_quant, rows, ffn, 1, kOp));
  HEARTH_RETURN_IF_ERROR(RequireKept(args.keep, args.kept, args.y_quant, ffn, kOp));
  if (!args.y.empty() || (!args.y_quant.has_values() && args.y_blocks.empty())) {
    HEARTH_RETURN_IF_ERROR(RequireView(args.y, dtype, {rows, ffn}, kOp, "y"));
  }
  return RequireRound(args.round_y, kOp);
}

absl::Status SwigluForward(const Exec& exec, const SwigluForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  const DType dtype = args.gate_up.dtype;
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(exec, dtype, args.has_forms(), kOp));
  return RunOnDevice<cpu::SwigluForward, cuda::SwigluForward>(exec, kOp, args);
}

absl::Status CanImplement(const SwigluBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.dy, kOp, "dy"));
  const DType dtype = args.dy.dtype;
  const int64_t rows = args.dy.rows();
  const int64_t ffn = args.dy.cols();
  HEARTH_RETURN_IF_ERROR(RequireView(args.gate_up, dtype, {rows, 2 * ffn}, kOp, "gate_up"));
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.d_gate_up_quant, kOp));
  HEARTH_RETURN_IF_ERROR(
      RequireBlocks(args.d_gate_up_blocks, args.d_gate_up_quant, rows, 2 * ffn, 2, kOp));
  HEARTH_RETURN_IF_ERROR(RequireKept({}, args.kept, args.d_gate_up_quant, ffn, kOp));
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.y_quant, kOp));
  HEARTH_RETURN_IF_ERROR(RequireRound(args.round_y, kOp));
  if (!args.y_quant.empty() &&
      (args.kept.empty() || args.y_quant.rows != nullptr || args.y_quant.amax != nullptr ||
       args.d_gate_up_quant.columns == nullptr)) {
    return absl::InvalidArgumentError("swiglu: y once more wants a kept input and only columns");
  }
  if (!args.d_gate_up.empty() ||
      (!args.d_gate_up_quant.has_values() && args.d_gate_up_blocks.empty())) {
    HEARTH_RETURN_IF_ERROR(RequireView(args.d_gate_up, dtype, {rows, 2 * ffn}, kOp, "d_gate_up"));
  }
  return RequireRound(args.round_d_gate_up, kOp);
}

absl::Status SwigluBackward(const Exec& exec, const SwigluBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.dy.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(exec, args.dy.dtype,
                                            !args.d_gate_up_quant.empty() ||
                                                !args.d_gate_up_blocks.empty() ||
                                                !args.kept.empty() || !args.y_quant.empty(),
                                            kOp));
  return RunOnDevice<cpu::SwigluBackward, cuda::SwigluBackward>(exec, kOp, args);
}

}  // namespace hearth::kernels
