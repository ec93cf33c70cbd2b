#include "kernels/norm/norm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/norm/cuda_limits.h"
#include "kernels/norm/implementation.h"

namespace hearth::kernels {
namespace {

NormForwardCall CallOf(const RmsNormForwardArgs& args) {
  return {"rmsnorm", false, args, TensorView(), TensorView()};
}
NormForwardCall CallOf(const LayerNormForwardArgs& args) {
  return {"layernorm", true, args, args.bias, args.mean};
}
NormBackwardCall CallOf(const RmsNormBackwardArgs& args) {
  return {"rmsnorm", false, args, TensorView(), TensorView()};
}
NormBackwardCall CallOf(const LayerNormBackwardArgs& args) {
  return {"layernorm", true, args, args.mean, args.d_bias};
}

absl::Status RequirePair(const TensorView& a,
                         const TensorView& b,
                         const char* op,
                         const char* names) {
  if (a.empty() != b.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": ", names, " must both be present or both absent"));
  }
  return absl::OkStatus();
}

absl::Status Check(const NormForwardCall& call) {
  const NormForwardArgs& args = call.args;
  const char* op = call.op;
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, op, "x"));
  const DType dtype = args.x.dtype;
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  if (!args.y.empty() || (!args.y_quant.has_values() && args.y_blocks.empty())) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.y, dtype, rows * cols, op, "y"));
  }
  HEARTH_RETURN_IF_ERROR(RequireCount(args.weight, dtype, cols, op, "weight"));
  if (!call.bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(call.bias, dtype, cols, op, "bias"));
  }
  HEARTH_RETURN_IF_ERROR(RequirePair(args.residual, args.sum, op, "residual and sum"));
  if (!args.residual.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.residual, dtype, rows * cols, op, "residual"));
    HEARTH_RETURN_IF_ERROR(RequireCount(args.sum, dtype, rows * cols, op, "sum"));
    if (args.sum.data == args.y.data) {
      return absl::InvalidArgumentError(absl::StrCat(op, ": sum may not alias y"));
    }
  }
  if (!args.rstd.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.rstd, StatisticsType(dtype), rows, op, "rstd"));
  }
  if (call.centred) {
    HEARTH_RETURN_IF_ERROR(RequirePair(call.mean, args.rstd, op, "mean and rstd"));
  }
  if (!call.mean.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(call.mean, StatisticsType(dtype), rows, op, "mean"));
  }
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.y_quant, op));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.y_blocks, args.y_quant, rows, cols, 1, op));
  HEARTH_RETURN_IF_ERROR(RequireRound(args.round_sum, op));
  return RequireRound(args.round_y, op);
}

absl::Status Check(const NormBackwardCall& call) {
  const NormBackwardArgs& args = call.args;
  const char* op = call.op;
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.dy, op, "dy"));
  const DType dtype = args.dy.dtype;
  const int64_t rows = args.dy.rows();
  const int64_t cols = args.dy.cols();
  HEARTH_RETURN_IF_ERROR(RequireCount(args.s, dtype, rows * cols, op, "s"));
  if (call.centred) {
    HEARTH_RETURN_IF_ERROR(RequireCount(call.mean, StatisticsType(dtype), rows, op, "mean"));
  }
  HEARTH_RETURN_IF_ERROR(RequireCount(args.rstd, StatisticsType(dtype), rows, op, "rstd"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.weight, dtype, cols, op, "weight"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.dx, dtype, rows * cols, op, "dx"));
  if (!args.d_sum.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.d_sum, dtype, rows * cols, op, "d_sum"));
  }
  if (!args.d_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireGradient(args.d_weight, dtype, cols, op, "d_weight"));
  }
  if (!call.d_bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireGradient(call.d_bias, dtype, cols, op, "d_bias"));
  }
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.dx_quant, op));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.dx_blocks, args.dx_quant, rows, cols, 1, op));
  return RequireRound(args.round_dx, op);
}

// The larger of what the two devices need for the partial sums. LayerNorm sums both gradients even
// if one of them is absent; RMSNorm skips the only one it has.
size_t WorkspaceBytes(const NormBackwardCall& call) {
  const NormBackwardArgs& args = call.args;
  const int64_t rows = args.dy.rows();
  const int64_t cols = args.dy.cols();
  const size_t one =
      std::max<size_t>(DTypeBytes(StatisticsType(args.dy.dtype), CeilDiv(rows, kReduceRows) * cols),
                       cuda::NormPartialBytes(rows, cols));
  if (call.centred) {
    return 2 * one;
  }
  return args.d_weight.empty() ? 0 : one;
}

absl::Status Run(const Exec& exec, const NormForwardCall& call) {
  const NormForwardArgs& args = call.args;
  HEARTH_RETURN_IF_ERROR(Check(call));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, call.op));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(
      exec, args.x.dtype, !args.y_quant.empty() || !args.y_blocks.empty(), call.op));
  return RunOnDevice<cpu::NormForward, cuda::NormForward>(exec, call.op, call);
}

absl::Status Run(const Exec& exec, const NormBackwardCall& call) {
  const NormBackwardArgs& args = call.args;
  HEARTH_RETURN_IF_ERROR(Check(call));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.dy.dtype, call.op));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(
      exec, args.dy.dtype, !args.dx_quant.empty() || !args.dx_blocks.empty(), call.op));
  for (const TensorView* gradient : {&args.d_weight, &call.d_bias}) {
    if (!gradient->empty()) {
      HEARTH_RETURN_IF_ERROR(RequireStorage(exec, gradient->dtype, call.op));
    }
  }
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, WorkspaceBytes(call), call.op));
  return RunOnDevice<cpu::NormBackward, cuda::NormBackward>(exec, call.op, call);
}

bool ForwardWritesBlocks(const Exec& exec, const NormForwardArgs& args) {
  return cuda::NormWritesBlocks(exec, args.x.cols(), !args.rstd.empty());
}

bool BackwardWritesBlocks(const Exec& exec, const NormBackwardArgs& args, int gradients) {
  return cuda::NormGradientWritesBlocks(exec, DTypeBytes(args.dy.dtype, 1), args.dy.cols(),
                                        gradients);
}

}  // namespace

absl::Status CanImplement(const RmsNormForwardArgs& args) {
  return Check(CallOf(args));
}
absl::Status CanImplement(const LayerNormForwardArgs& args) {
  return Check(CallOf(args));
}
absl::Status CanImplement(const RmsNormBackwardArgs& args) {
  return Check(CallOf(args));
}
absl::Status CanImplement(const LayerNormBackwardArgs& args) {
  return Check(CallOf(args));
}

size_t RmsNormForwardWorkspaceBytes(const RmsNormForwardArgs&) {
  return 0;
}
size_t LayerNormForwardWorkspaceBytes(const LayerNormForwardArgs&) {
  return 0;
}
size_t RmsNormBackwardWorkspaceBytes(const RmsNormBackwardArgs& args) {
  return WorkspaceBytes(CallOf(args));
}
size_t LayerNormBackwardWorkspaceBytes(const LayerNormBackwardArgs& args) {
  return WorkspaceBytes(CallOf(args));
}

bool WritesBlocks(const Exec& exec, const RmsNormForwardArgs& args) {
  return ForwardWritesBlocks(exec, args);
}
bool WritesBlocks(const Exec& exec, const LayerNormForwardArgs& args) {
  return ForwardWritesBlocks(exec, args);
}
bool WritesBlocks(const Exec& exec, const RmsNormBackwardArgs& args) {
  return BackwardWritesBlocks(exec, args, 1);
}
bool WritesBlocks(const Exec& exec, const LayerNormBackwardArgs& args) {
  return BackwardWritesBlocks(exec, args, 2);
}

absl::Status RmsNormForward(const Exec& exec, const RmsNormForwardArgs& args) {
  return Run(exec, CallOf(args));
}
absl::Status LayerNormForward(const Exec& exec, const LayerNormForwardArgs& args) {
  return Run(exec, CallOf(args));
}
absl::Status RmsNormBackward(const Exec& exec, const RmsNormBackwardArgs& args) {
  return Run(exec, CallOf(args));
}
absl::Status LayerNormBackward(const Exec& exec, const LayerNormBackwardArgs& args) {
  return Run(exec, CallOf(args));
}

}  // namespace hearth::kernels
