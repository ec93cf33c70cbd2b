// Attention of one new token a sequence to the keys and values kept of the tokens before it, and
// how prompts get there.
//   The fused row is [q: Hq*D | k: Hkv*D | v: Hkv*D], as in attention.h; query head h reads
//   key/value head h / (Hq / Hkv).
//   A cache is a pair [B, Hkv, L, D]: the keys (values) of a head lie one behind another by
//   position. Rows at positions that no token has written are never read.
//   T = kF32 or kF64 (CPU), A (CUDA, core/exec.h), the same for all floating views of a call.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/core/door.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace hearth::kernels {

struct CacheDims {
  int64_t batch = 0;     // B
  int64_t capacity = 0;  // L, tokens of a sequence
  int64_t heads = 0;     // Hq, a multiple of kv_heads
  int64_t kv_heads = 0;  // Hkv
  int64_t head_dim = 0;  // D

  constexpr int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }  // of a fused row
  constexpr int64_t elements() const { return batch * kv_heads * capacity * head_dim; }
};

// Row b: its q and k are rotated, its k and v are written to the cache at positions[b] = p, then
//   out = round(softmax(scale * q kT) v) over the positions 0 .. p of its sequence.
//   qkv       : [B, (Hq + 2 Hkv) D] T; stays as it is
//   rope      : of q and k at `positions`, to the bits that QkNormRopeForward gives them with
//               `round`; not enabled: they are taken as they are
//   positions : [B] i32, 0 <= position < L (CPU: checked. A GPU cannot report that: it takes the
//               nearest; what feeds it must have checked)
//   keys, values : [B, Hkv, L, D] T
//   out       : [B, Hq D] T; aliases nothing
//   arrivals  : [B, Hkv] i32, only on a GPU: zeros before the call, zeros after it
//   scale     : 0 means 1 / sqrt(D)
//   round     : probabilities (CPU) and out are rounded to it; on a GPU probabilities of bf16 are
//               rounded to bf16 where tensor cores multiply them (D <= 128, a multiple of 8)
//   splits    : blocks that share a sequence's keys on a GPU, at most 64; 0: CacheSplits. Bits
//               depend on it. Blocks that get no keys do nothing
// Workspace: scores, and with rope rotated rows (CPU); partial results where a sequence is divided
// among blocks (GPU).
// With Exec::early_start the kernel before in the stream must not write positions, keys or values.
// CPU: the bits are those that AttentionForward gives the row, as far as OpenBLAS sums a row's
// products alike for any number of rows; independent of exec.threads. CUDA: every key and value is
// read once; the same bits in every run.
// Errors: kInvalidArgument (shape, dtype, workspace, odd D with rope); kOutOfRange (position, CPU);
// kUnimplemented (storage, rounding, D > 256 on a GPU).
struct CachedAttentionArgs {
  CacheDims dims;
  TensorView qkv;
  TensorView positions;
  TensorView keys;
  TensorView values;
  TensorView out;
  TensorView arrivals;
  RopeConfig rope = {false, 10000.0, {}};
  double scale = 0.0;
  DType round = DType::kF32;
  int64_t splits = 0;
};

size_t CachedAttentionWorkspaceBytes(const Exec& exec, const CachedAttentionArgs& args);
// Enough for either device; of a GPU with at most 1024 multiprocessors.
size_t CachedAttentionWorkspaceBytes(const CachedAttentionArgs& args, int threads);
HEARTH_DECLARE_OP(CachedAttention, CachedAttentionArgs);

// Whether CachedAttention does all that `args` asks for, with its rope: rotation it does, norms of
// heads it does not.
bool CachedAttentionRotates(const QkNormRopeForwardArgs& args);
// Whether HEARTH_CACHED_ATTENTION has the word `how`, to compare (docs/gpu.md).
bool CachedAttentionAsked(absl::string_view how);

// Keys and values of prompts to the positions 0, 1 ... of the cache.
//   qkv     : [B * sequence, (Hq + 2 Hkv) D] T; row r is position r % sequence of sequence
//             r / sequence
//   lengths : [B] i32: rows of each sequence that count; clamped to [0, min(sequence, L)]
//   keys, values : [B, Hkv, L, D] T; other positions stay as they are
// Errors: kInvalidArgument (shape, dtype); kUnimplemented (storage).
struct FillCacheArgs {
  CacheDims dims;
  int64_t sequence = 0;
  TensorView qkv;
  TensorView lengths;
  TensorView keys;
  TensorView values;
};

HEARTH_DECLARE_OP(FillCache, FillCacheArgs);

namespace cpu {
// Each of Exec::threads has scores of its own.
size_t CachedAttentionWorkspaceBytes(const CachedAttentionArgs& args, int threads);
}  // namespace cpu
namespace cuda {
inline constexpr int64_t kMostSplits = 64;
// Blocks that share a sequence's keys: enough to fill `multiprocessors`.
int64_t CacheSplits(const CacheDims& dims, int multiprocessors);
// What a call asks for, or those.
int64_t SplitsOf(const CachedAttentionArgs& args, int multiprocessors);
// Workspace of that many splits; 0 if there is one.
size_t SplitWorkspaceBytes(const CacheDims& dims, int64_t splits);
size_t CachedAttentionWorkspaceBytes(const Exec& exec, const CachedAttentionArgs& args);
}  // namespace cuda

}  // namespace hearth::kernels
