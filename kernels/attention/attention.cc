#include "kernels/attention/attention.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "attention";

absl::Status CheckShapes(const AttentionArgs& args) {
  const AttentionDims& dims = args.dims;
  const TensorView& qkv = args.qkv;
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
      RequireCount(args.out, qkv.dtype, rows * dims.heads * dims.head_dim, kOp, "out"));
  if (args.documents < 0 || (args.documents > 0 && args.starts.rank == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": documents ", args.documents, ": none are negative or without starts"));
  }
  if (!args.starts.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.starts, DType::kI32, rows, kOp, "starts"));
  }
  return RequireRound(args.round, kOp);
}

absl::Status CheckLse(const AttentionArgs& args) {
  const DType storage = args.qkv.dtype;
  return RequireCount(args.lse, storage == DType::kBF16 ? DType::kF32 : storage,
                      args.dims.batch * args.dims.heads * args.dims.sequence, kOp, "lse");
}

// The door's last steps, the same for both directions.
template <auto kOnCpu, auto kOnCuda, typename Args>
absl::Status Run(const Exec& exec, const Args& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.qkv.dtype, kOp));
  return RunOnDevice<kOnCpu, kOnCuda>(exec, kOp, args);
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
  HEARTH_RETURN_IF_ERROR(CheckShapes(args));
  return args.lse.empty() ? absl::OkStatus() : CheckLse(args);
}

size_t AttentionForwardWorkspaceBytes(const Exec& exec, const AttentionForwardArgs& args) {
  return WorkspaceOnDevice<cpu::AttentionForwardWorkspaceBytes,
                           cuda::AttentionForwardWorkspaceBytes>(exec, args);
}

absl::Status AttentionForward(const Exec& exec, const AttentionForwardArgs& args) {
  return Run<cpu::AttentionForward, cuda::AttentionForward>(exec, args);
}

absl::Status CanImplement(const AttentionBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckShapes(args));
  const DType dtype = args.qkv.dtype;
  HEARTH_RETURN_IF_ERROR(RequireCount(args.d_out, dtype, args.out.numel(), kOp, "d_out"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.d_qkv, dtype, args.qkv.numel(), kOp, "d_qkv"));
  return CheckLse(args);
}

size_t AttentionBackwardWorkspaceBytes(const Exec& exec, const AttentionBackwardArgs& args) {
  return WorkspaceOnDevice<cpu::AttentionBackwardWorkspaceBytes,
                           cuda::AttentionBackwardWorkspaceBytes>(exec, args);
}

absl::Status AttentionBackward(const Exec& exec, const AttentionBackwardArgs& args) {
  return Run<cpu::AttentionBackward, cuda::AttentionBackward>(exec, args);
}

std::vector<int64_t> AttentionDocumentBounds(const Exec& exec, const AttentionForwardArgs& args) {
  if constexpr (kBuiltWithCuda) {
    if (exec.device == Device::kCuda) {
      return cuda::AttentionDocumentBounds(exec, args);
    }
  }
  return {};
}

}  // namespace hearth::kernels
