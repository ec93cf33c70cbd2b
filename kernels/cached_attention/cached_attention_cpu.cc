#include <omp.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/attention/softmax_row.h"
#include "kernels/cached_attention/cached_attention.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/blas.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "cached_attention";

// Positions are indices: a wrong one would write outside the cache.
absl::Status CheckPositions(const CachedAttentionArgs& args) {
  const int32_t* positions = args.positions.as<int32_t>();
  for (int64_t b = 0; b < args.dims.batch; ++b) {
    if (positions[b] < 0 || positions[b] >= args.dims.capacity) {
      return absl::OutOfRangeError(absl::StrCat(kOp, ": sequence ", b, " is at position ",
                                                positions[b], ", the cache has ",
                                                args.dims.capacity));
    }
  }
  return absl::OkStatus();
}

// The key, or value, of a fused row to its position of the cache.
template <typename T>
void Keep(const CacheDims& dims, const T* from, int64_t head, int64_t position, T* cache) {
  std::copy_n(from, dims.head_dim, cache + (head * dims.capacity + position) * dims.head_dim);
}

// The op that rotates all rows, before attention.
QkNormRopeForwardArgs RotationOf(const CachedAttentionArgs& args, const TensorView& rotated) {
  QkNormRopeForwardArgs rotation;
  rotation.dims = {args.dims.heads, args.dims.kv_heads, args.dims.head_dim};
  rotation.rope = args.rope;
  rotation.qkv = TensorView(args.qkv.data, args.qkv.dtype, {args.dims.batch, args.dims.width()});
  rotation.positions = args.positions;
  rotation.out = rotated;
  rotation.round_out = args.round;
  return rotation;
}

// Bytes of the workspace: its own for the rotation, then rotated rows, then scores.
struct Scratch {
  size_t rotated = 0;
  size_t scores = 0;
  size_t total = 0;
};
Scratch ScratchOf(const CachedAttentionArgs& args, int threads) {
  const CacheDims& d = args.dims;
  Scratch scratch;
  if (args.rope.enabled) {
    const QkNormRopeForwardArgs rotation = RotationOf(args, TensorView());
    scratch.rotated = AlignUp(cpu::QkNormRopeForwardWorkspaceBytes(rotation), 64);
    const auto rows = static_cast<size_t>(DTypeBytes(args.qkv.dtype, d.batch * d.width()));
    scratch.scores = scratch.rotated + AlignUp(rows, 64);
  }
  scratch.total =
      scratch.scores + static_cast<size_t>(DTypeBytes(
                           args.qkv.dtype, threads * (d.heads / d.kv_heads) * d.capacity));
  return scratch;
}

// The query heads that share one key/value head; `head` counts over [B, Hkv].
template <typename T>
void AttendHead(const CachedAttentionArgs& args, const T* qkv, int64_t head, T* scores) {
  const CacheDims& d = args.dims;
  const int64_t b = head / d.kv_heads;
  const int64_t kv = head % d.kv_heads;
  const int64_t group = d.heads / d.kv_heads;
  const int64_t dim = d.head_dim;
  const int64_t position = args.positions.as<int32_t>()[b];
  const T* row = qkv + b * d.width();
  Keep(d, row + (d.heads + kv) * dim, head, position, args.keys.as<T>());
  Keep(d, row + (d.heads + d.kv_heads + kv) * dim, head, position, args.values.as<T>());
  const T* keys = args.keys.as<T>() + head * d.capacity * dim;
  const T* values = args.values.as<T>() + head * d.capacity * dim;
  T* out = args.out.as<T>() + (b * d.heads + kv * group) * dim;
  const double scale = args.scale != 0.0 ? args.scale : 1.0 / std::sqrt(static_cast<double>(dim));
  const int64_t seen = position + 1;
  blas::Gemm(false, true, group, seen, dim, static_cast<T>(scale), row + kv * group * dim, dim,
             keys, dim, T{0}, scores, seen);
  for (int64_t g = 0; g < group; ++g) {
    cpu::SoftmaxRow(cpu::RowRange{0, seen, seen}, scores + g * seen);
    RoundSpan(scores + g * seen, seen, args.round);
  }
  blas::Gemm(false, false, group, dim, seen, T{1}, scores, seen, values, dim, T{0}, out, dim);
  RoundSpan(out, group * dim, args.round);
}

}  // namespace

namespace cpu {

size_t CachedAttentionWorkspaceBytes(const CachedAttentionArgs& args, int threads) {
  return ScratchOf(args, threads).total;
}

absl::Status CachedAttention(const Exec& exec, const CachedAttentionArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckPositions(args));
  const CacheDims& d = args.dims;
  const Scratch scratch = ScratchOf(args, exec.threads);
  char* base = static_cast<char*>(exec.workspace.data);
  TensorView qkv = args.qkv;
  if (args.rope.enabled) {
    qkv = TensorView(static_cast<void*>(base + scratch.rotated), args.qkv.dtype,
                     {d.batch, d.width()});
    HEARTH_RETURN_IF_ERROR(cpu::QkNormRopeForward(exec, RotationOf(args, qkv)));
  }
  return DispatchFloating(args.qkv.dtype, [&]<typename T>() {
    T* scores = reinterpret_cast<T*>(base + scratch.scores);
    blas::SetThreads(1);
    ParallelFor(exec, d.batch * d.kv_heads, 1, [&](int64_t head, int64_t) {
      AttendHead(args, qkv.as<T>(), head,
                 scores + omp_get_thread_num() * (d.heads / d.kv_heads) * d.capacity);
    });
    return absl::OkStatus();
  });
}

absl::Status FillCache(const Exec& exec, const FillCacheArgs& args) {
  const CacheDims& d = args.dims;
  const int32_t* lengths = args.lengths.as<int32_t>();
  return DispatchFloating(args.qkv.dtype, [&]<typename T>() {
    ParallelFor(exec, d.batch * d.kv_heads, 1, [&](int64_t head, int64_t) {
      const int64_t b = head / d.kv_heads;
      const int64_t kv = head % d.kv_heads;
      const int64_t rows = std::clamp<int64_t>(lengths[b], 0, std::min(args.sequence, d.capacity));
      for (int64_t r = 0; r < rows; ++r) {
        const T* row = args.qkv.as<T>() + (b * args.sequence + r) * d.width();
        Keep(d, row + (d.heads + kv) * d.head_dim, head, r, args.keys.as<T>());
        Keep(d, row + (d.heads + d.kv_heads + kv) * d.head_dim, head, r, args.values.as<T>());
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace cpu
}  // namespace hearth::kernels
