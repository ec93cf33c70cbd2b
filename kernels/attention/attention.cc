#include "kernels/attention/attention.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "attention";

absl::Status CheckShapes(const AttentionDims& dims,
                         const TensorView& qkv,
                         const TensorView& out,
                         const TensorView& segments,
                         DType round) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(qkv, kOp, "qkv"));
  if (dims.batch < 1 || dims.sequence < 1 || dims.heads < 1 || dims.kv_heads < 1 ||
      dims.head_dim < 1 || dims.heads % dims.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": batch ", dims.batch, ", sequence ", dims.sequence, ", heads ",
                     dims.heads, ", kv_heads ", dims.kv_heads, ", head_dim ", dims.head_dim,
                     ": all must be positive and heads a multiple of kv_heads"));
  }
  const int64_t rows = dims.batch * dims.sequence;
  HEARTH_RETURN_IF_ERROR(RequireCount(
      qkv, qkv.dtype, rows * (dims.heads + 2 * dims.kv_heads) * dims.head_dim, kOp, "qkv"));
  HEARTH_RETURN_IF_ERROR(
      RequireCount(out, qkv.dtype, rows * dims.heads * dims.head_dim, kOp, "out"));
  if (!segments.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(segments, DType::kI32, rows, kOp, "segments"));
  }
  return RequireRound(round, kOp);
}

absl::Status CheckLse(const AttentionDims& dims, DType storage, const TensorView& lse) {
  return RequireCount(lse, storage == DType::kBF16 ? DType::kF32 : storage,
                      dims.batch * dims.heads * dims.sequence, kOp, "lse");
}

template <auto kOnCpu, auto kOnCuda, typename Args>
size_t WorkspaceOnDevice(const Exec& exec, const Args& args) {
  if constexpr (kBuiltWithCuda) {
    if (exec.device == Device::kCuda) {
      return kOnCuda(exec, args);
    }
  }
  return kOnCpu(args, exec.threads);
}

}  // namespace

absl::Status CanImplement(const AttentionForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckShapes(args.dims, args.qkv, args.out, args.segments, args.round));
  return args.lse.empty() ? absl::OkStatus() : CheckLse(args.dims, args.qkv.dtype, args.lse);
}

size_t AttentionForwardWorkspaceBytes(const Exec& exec, const AttentionForwardArgs& args) {
  return WorkspaceOnDevice<cpu::AttentionForwardWorkspaceBytes,
                           cuda::AttentionForwardWorkspaceBytes>(exec, args);
}

absl::Status AttentionForward(const Exec& exec, const AttentionForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.qkv.dtype, kOp));
  return RunOnDevice<cpu::AttentionForward, cuda::AttentionForward>(exec, kOp, args);
}

absl::Status CanImplement(const AttentionBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckShapes(args.dims, args.qkv, args.out, args.segments, args.round));
  const DType dtype = args.qkv.dtype;
  HEARTH_RETURN_IF_ERROR(RequireCount(args.d_out, dtype, args.out.numel(), kOp, "d_out"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.d_qkv, dtype, args.qkv.numel(), kOp, "d_qkv"));
  return CheckLse(args.dims, dtype, args.lse);
}

size_t AttentionBackwardWorkspaceBytes(const Exec& exec, const AttentionBackwardArgs& args) {
  return WorkspaceOnDevice<cpu::AttentionBackwardWorkspaceBytes,
                           cuda::AttentionBackwardWorkspaceBytes>(exec, args);
}

absl::Status AttentionBackward(const Exec& exec, const AttentionBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.qkv.dtype, kOp));
  return RunOnDevice<cpu::AttentionBackward, cuda::AttentionBackward>(exec, kOp, args);
}

}  // namespace hearth::kernels
