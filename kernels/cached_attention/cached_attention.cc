#include "kernels/cached_attention/cached_attention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "cached_attention";
constexpr char kFillOp[] = "fill_cache";
constexpr int kMostMultiprocessors = 1024;

absl::Status CheckDims(const CacheDims& dims, const char* op) {
  if (dims.batch < 1 || dims.capacity < 1 || dims.heads < 1 || dims.kv_heads < 1 ||
      dims.head_dim < 1 || dims.heads % dims.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": batch ", dims.batch, ", capacity ", dims.capacity, ", heads ",
                     dims.heads, ", kv_heads ", dims.kv_heads, ", head_dim ", dims.head_dim,
                     ": all must be positive and heads a multiple of kv_heads"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const CachedAttentionArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckDims(args.dims, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.qkv, kOp, "qkv"));
  const DType dtype = args.qkv.dtype;
  const CacheDims& dims = args.dims;
  HEARTH_RETURN_IF_ERROR(RequireCount(args.qkv, dtype, dims.batch * dims.width(), kOp, "qkv"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.positions, DType::kI32, dims.batch, kOp, "positions"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.keys, dtype, dims.elements(), kOp, "keys"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.values, dtype, dims.elements(), kOp, "values"));
  HEARTH_RETURN_IF_ERROR(
      RequireCount(args.out, dtype, dims.batch * dims.heads * dims.head_dim, kOp, "out"));
  if (args.rope.enabled && dims.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": head_dim ", dims.head_dim, " is odd, with rope"));
  }
  if (args.splits < 0 || args.splits > cuda::kMostSplits) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": splits ", args.splits, " is not in [0, ", cuda::kMostSplits, "]"));
  }
  return RequireRound(args.round, kOp);
}

size_t CachedAttentionWorkspaceBytes(const Exec& exec, const CachedAttentionArgs& args) {
  if constexpr (kBuiltWithCuda) {
    if (exec.device == Device::kCuda) {
      return cuda::CachedAttentionWorkspaceBytes(exec, args);
    }
  }
  return cpu::CachedAttentionWorkspaceBytes(args, exec.threads);
}

size_t CachedAttentionWorkspaceBytes(const CachedAttentionArgs& args, int threads) {
  const int64_t splits = cuda::SplitsOf(args, kMostMultiprocessors);
  return std::max(cpu::CachedAttentionWorkspaceBytes(args, threads),
                  cuda::SplitWorkspaceBytes(args.dims, splits));
}

absl::Status CachedAttention(const Exec& exec, const CachedAttentionArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.qkv.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, CachedAttentionWorkspaceBytes(exec, args), kOp));
  if (exec.device == Device::kCuda) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.arrivals, DType::kI32,
                                        args.dims.batch * args.dims.kv_heads, kOp, "arrivals"));
  }
  return RunOnDevice<cpu::CachedAttention, cuda::CachedAttention>(exec, kOp, args);
}

bool CachedAttentionRotates(const QkNormRopeForwardArgs& args) {
  return args.q_weight.empty() && !CachedAttentionAsked("apart");
}

bool CachedAttentionAsked(absl::string_view how) {
  const char* given = GetEnv("HEARTH_CACHED_ATTENTION");
  for (const absl::string_view word : absl::StrSplit(given == nullptr ? "" : given, ',')) {
    if (word == how) {
      return true;
    }
  }
  return false;
}

absl::Status CanImplement(const FillCacheArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckDims(args.dims, kFillOp));
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.qkv, kFillOp, "qkv"));
  const DType dtype = args.qkv.dtype;
  const CacheDims& dims = args.dims;
  if (args.sequence < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(kFillOp, ": sequence ", args.sequence, " must be positive"));
  }
  HEARTH_RETURN_IF_ERROR(
      RequireCount(args.qkv, dtype, dims.batch * args.sequence * dims.width(), kFillOp, "qkv"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.lengths, DType::kI32, dims.batch, kFillOp, "lengths"));
  HEARTH_RETURN_IF_ERROR(RequireCount(args.keys, dtype, dims.elements(), kFillOp, "keys"));
  return RequireCount(args.values, dtype, dims.elements(), kFillOp, "values");
}

absl::Status FillCache(const Exec& exec, const FillCacheArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.qkv.dtype, kFillOp));
  return RunOnDevice<cpu::FillCache, cuda::FillCache>(exec, kFillOp, args);
}

namespace cuda {

int64_t CacheSplits(const CacheDims& dims, int multiprocessors) {
  // A multiprocessor of compute capability 9.0 has room for three blocks, and with all of them the
  // keys and values of short texts are under way at once. Fewer than 64 keys are not worth a block.
  // Where nearly all multiprocessors have a block already, fewer than 384 are not worth it: on an
  // H100 joining the results of 64 sequences takes 3 us (64 x 440 keys of 3 heads 64 wide: 11.1 us
  // undivided, 14.4 us in two; 384 keys of 2 heads 128 wide: 15.1, 16.5, and 17.4 in three).
  const int64_t undivided = dims.batch * dims.kv_heads;
  const int64_t wanted = int64_t{3} * multiprocessors / undivided;
  const bool filled = undivided * 10 >= int64_t{9} * multiprocessors;
  const int64_t most = filled ? dims.capacity / 384 : (dims.capacity + 63) / 64;
  return std::max<int64_t>(1, std::min({wanted, most, kMostSplits}));
}

int64_t SplitsOf(const CachedAttentionArgs& args, int multiprocessors) {
  return args.splits > 0 ? args.splits : CacheSplits(args.dims, multiprocessors);
}

size_t SplitWorkspaceBytes(const CacheDims& dims, int64_t splits) {
  if (splits <= 1) {
    return 0;
  }
  return static_cast<size_t>(splits * dims.batch * dims.heads * (dims.head_dim + 2)) *
         sizeof(float);
}

}  // namespace cuda
}  // namespace hearth::kernels
