#include "kernels/embedding/embedding.h"

#include "common/base/status_macros.h"
#include "kernels/embedding/segments.h"

namespace hearth::kernels {

constexpr char kOp[] = "embedding";

absl::Status CanImplement(const EmbeddingForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.table, kOp, "table"));
  const int64_t count = args.tokens.numel();
  const int64_t cols = args.table.cols();
  HEARTH_RETURN_IF_ERROR(RequireCount(args.tokens, DType::kI32, count, kOp, "tokens"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.out, args.table.dtype, count * cols, kOp, "out"));
  if (!args.position_table.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.positions, DType::kI32, count, kOp, "positions"));
    HEARTH_RETURN_IF_ERROR(RequireView(args.position_table, args.table.dtype,
                                       {args.position_table.rows(), cols}, kOp, "position_table"));
  }
  return RequireRound(args.round_out, kOp);
}

absl::Status EmbeddingForward(const Exec& exec, const EmbeddingForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.table.dtype, kOp));
  return RunOnDevice<cpu::EmbeddingForward, cuda::EmbeddingForward>(exec, kOp, args);
}

absl::Status CanImplement(const EmbeddingBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.d_out, kOp, "d_out"));
  const int64_t rows = args.d_out.rows();
  const auto check = [&](const TensorView& indices, const char* index_name,
                         const TensorView& gradient, const char* name) {
    HEARTH_RETURN_IF_ERROR(RequireCount(indices, DType::kI32, rows, kOp, index_name));
    HEARTH_RETURN_IF_ERROR(RequireFloating(gradient, kOp, name));
    return RequireView(gradient, gradient.dtype, {gradient.rows(), args.d_out.cols()}, kOp, name);
  };
  if (!args.d_table.empty()) {
    HEARTH_RETURN_IF_ERROR(check(args.tokens, "tokens", args.d_table, "d_table"));
  }
  if (!args.d_position_table.empty()) {
    HEARTH_RETURN_IF_ERROR(
        check(args.positions, "positions", args.d_position_table, "d_position_table"));
  }
  return absl::OkStatus();
}

size_t EmbeddingBackwardWorkspaceBytes(const EmbeddingBackwardArgs& args) {
  return SegmentScratchOf(args.d_out.rows(), args.d_out.cols()).total();
}

absl::Status EmbeddingBackward(const Exec& exec, const EmbeddingBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  for (const TensorView* view : {&args.d_out, &args.d_table, &args.d_position_table}) {
    if (!view->empty()) {
      HEARTH_RETURN_IF_ERROR(RequireStorage(exec, view->dtype, kOp));
    }
  }
  return RunOnDevice<cpu::EmbeddingBackward, cuda::EmbeddingBackward>(exec, kOp, args);
}

}  // namespace hearth::kernels
