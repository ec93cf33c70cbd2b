// What the kernels of cached attention share: which keys a block reads, and how what warps and
// blocks found becomes one, in a fixed order: warps, then blocks, by the block that comes last.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/attention/flash.cuh"
#include "kernels/cached_attention/cached_attention.h"
#include "kernels/cached_attention/rotate.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda::cached {

template <typename A>
struct Params {
  const A* qkv;
  const int32_t* positions;
  A* keys;
  A* values;
  A* out;
  int32_t* arrivals;
  float* partial;  // [rows of out, splits, D + 2]: sums, maximum (of scores times log2 e), total
  int64_t capacity;
  int heads;
  int kv_heads;
  int head_dim;
  int group;            // query heads of a key/value head
  int chunks;           // of up to GC of them
  int chunk_warps = 1;  // chunks of a block, a power of two; the other warps share keys
  float scale_log2;
  bool vectors;  // 16-byte access
  Rotation rotation;
};

// 2^(old - now), where nothing seen yet (-inf) counts as nothing.
__device__ __forceinline__ float Correction(float old, float now) {
  return old == -INFINITY ? 0.0F : exp2f(old - now);
}

// What this block reads, of the keys and values of head `kv` of sequence `b`.
struct Stretch {
  int64_t b;
  int kv;
  int seen;   // tokens of the sequence
  int step;   // keys that the block reads at a time
  int begin;  // its keys
  int end;
  int used;  // blocks that have keys at all
};

// In 32 bits: a division of 64 takes about 100 instructions, and the first copy waits for it.
__device__ __forceinline__ unsigned CeilDivWords(unsigned a, unsigned b) {
  return (a + b - 1) / b;
}

// `step`: keys that a block reads at a time.
template <typename A>
__device__ __forceinline__ Stretch StretchOf(const Params<A>& p, int step) {
  Stretch s;
  s.step = step;
  s.kv = blockIdx.x % p.kv_heads;
  s.b = blockIdx.x / p.kv_heads;
  // Within the cache whatever the positions say.
  s.seen = min(max(p.positions[s.b], 0), static_cast<int>(p.capacity) - 1) + 1;
  // Whole steps, so that few warps have nothing to do.
  const auto seen = static_cast<unsigned>(s.seen);
  const unsigned share = gridDim.y == 1 ? seen : CeilDivWords(seen, gridDim.y);
  const int length = static_cast<int>(CeilDivWords(share, s.step)) * s.step;
  s.used = gridDim.y == 1 ? 1 : static_cast<int>(CeilDivWords(seen, length));
  s.begin = blockIdx.y * length;
  s.end = min(s.begin + length, s.seen);
  return s;
}

// The token's own key and value to the cache.
template <typename A>
__device__ __forceinline__ void KeepToken(
    const Params<A>& p, const TokenHeads& heads, const A* row, int kv, int64_t at) {
  const A* const key = row + static_cast<int64_t>(p.heads + kv) * p.head_dim;
  for (int d = threadIdx.x; d < p.head_dim; d += static_cast<int>(blockDim.x)) {
    // With several chunks of heads several blocks write it: the same bytes.
    p.keys[at + d] = FromFloat<A>(heads.Value(key, d));
    p.values[at + d] = row[static_cast<int64_t>(p.heads + p.kv_heads + kv) * p.head_dim + d];
  }
}

// What the warps of a block found. Eight floats more a row: rows that lanes write side by side
// begin in other banks.
template <int kWarps, int GC, int kWidth>
struct Found {
  float sums[kWarps][GC][kWidth + 8];
  float maxima[kWarps][GC];
  float totals[kWarps][GC];
};

// Query heads that a warp joins at a time, and splits of them that it reads at a time.
template <int kWidth>
constexpr int kJoinHeads = kWidth > 128 ? 1 : 2;
template <int kWidth>
constexpr int kJoinSplits = kWidth > 128 ? 2 : 4;

// A lane's two splits of a query head: `lane` and `lane` + 32.
struct LaneSplits {
  float max[2];
  float total[2];
  float weight[2];  // of the split's sums, by the maximum of all splits
};

// `from`: of the first split; `used` splits, none for a head that there is not.
__device__ __forceinline__ LaneSplits LoadLaneSplits(const float* from, int head_dim, int used) {
  LaneSplits mine = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int s = static_cast<int>(threadIdx.x) % 32 + 32 * i;
    // Past L1, which may still hold what was there before the other blocks wrote.
    const float* stats = from + s * (head_dim + 2) + head_dim;
    mine.max[i] = s < used ? __ldcg(stats) : -INFINITY;
    mine.total[i] = s < used ? __ldcg(stats + 1) : 0.0F;
  }
  return mine;
}

// Sets the weights; returns 1 / the total of all splits.
__device__ __forceinline__ float WeighSplits(LaneSplits& mine) {
  const float max = WarpMax(fmaxf(mine.max[0], mine.max[1]));
  float total = 0.0F;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    mine.weight[i] = Correction(mine.max[i], max);
    total = fmaf(mine.total[i], mine.weight[i], total);
  }
  return 1.0F / WarpSum(total);
}

// What the blocks of a sequence found for some query heads of a warp becomes output: heads `head`,
// `head` + `step` .. of the group, as far as it goes. Waits for memory twice, however many splits
// there are up to four: for the maxima and totals, which each lane reads of its own splits, then
// for the sums.
template <int kWidth, typename A>
__device__ __forceinline__ void JoinSplits(
    const Params<A>& p, int64_t first_row, int head, int step, int splits, int used) {
  constexpr int kHeads = kJoinHeads<kWidth>;
  constexpr int kAtOnce = kJoinSplits<kWidth>;
  constexpr int kParts = kWidth / 32;
  static_assert(kMostSplits == 64, "a lane has two splits");
  const int lane = threadIdx.x % 32;
  const int stride = p.head_dim + 2;
  const float* from[kHeads];
  LaneSplits mine[kHeads];
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    const int h = head + n * step;
    from[n] = p.partial + (first_row + h) * splits * stride;
    mine[n] = LoadLaneSplits(from[n], p.head_dim, h < p.group ? used : 0);
  }
  float inverse[kHeads];
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    inverse[n] = WeighSplits(mine[n]);
  }
  float sum[kHeads][kParts] = {};
  for (int s = 0; s < used; s += kAtOnce) {
    float value[kAtOnce][kHeads][kParts];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
      for (int n = 0; n < kHeads; ++n) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const int d = part * 32 + lane;
          const bool there = s + u < used && head + n * step < p.group && d < p.head_dim;
          value[u][n][part] = there ? __ldcg(from[n] + (s + u) * stride + d) : 0.0F;
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
      for (int n = 0; n < kHeads; ++n) {
        // Splits behind the last one that is used weigh nothing, and have no values.
        const float own = s + u < 32 ? mine[n].weight[0] : mine[n].weight[1];
        const float factor = __shfl_sync(0xFFFFFFFF, own, (s + u) % 32);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          sum[n][part] = fmaf(value[u][n][part], factor, sum[n][part]);
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    const int h = head + n * step;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int d = part * 32 + lane;
      if (h < p.group && d < p.head_dim) {
        p.out[(first_row + h) * p.head_dim + d] = FromFloat<A>(sum[n][part] * inverse[n]);
      }
    }
  }
}

// Over aligned groups of kLanes lanes; each lane gets its group's.
template <int kLanes>
__device__ __forceinline__ float LanesMax(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    x = MaxNan(x, __shfl_xor_sync(0xFFFFFFFF, x, offset));
  }
  return x;
}
template <int kLanes>
__device__ __forceinline__ float LanesSum(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFF, x, offset);
  }
  return x;
}

// Joins the block's warps: to the output, or to this block's part of it. A warp takes a head.
template <typename A, int kWarps, int GC, int kWidth>
__device__ __forceinline__ void JoinWarps(const Params<A>& p,
                                          const Stretch& s,
                                          const Found<kWarps, GC, kWidth>& found) {
  const int first_head = static_cast<int>(blockIdx.z) * p.chunk_warps * GC;
  const int block_heads = min(p.chunk_warps * GC, p.group - first_head);
  const int lane = threadIdx.x % 32;
  for (int h = static_cast<int>(threadIdx.x) / 32; h < block_heads; h += kWarps) {
    const int g = h % GC;
    // Warps of one chunk of heads are chunk_warps apart. Each of them has seen other keys. Lane i
    // has the i-th of them, and so have the lanes kWarps further up.
    static_assert((kWarps & (kWarps - 1)) == 0 && kWarps <= 32, "groups of lanes have them all");
    const int first = h / GC;
    const int own = first + lane % kWarps * p.chunk_warps;
    const float own_max = own < kWarps ? found.maxima[own][g] : -INFINITY;
    const float max = LanesMax<kWarps>(own_max);
    const float weight = Correction(own_max, max);
    const float total = LanesSum<kWarps>(own < kWarps ? found.totals[own][g] * weight : 0.0F);
    float weights[kWarps];
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      weights[i] = __shfl_sync(0xFFFFFFFF, weight, i);
    }
    const float inverse = 1.0F / total;
    const int64_t out_row = s.b * p.heads + s.kv * p.group + first_head + h;
    float* part = p.partial + (out_row * gridDim.y + blockIdx.y) * (p.head_dim + 2);
#pragma unroll
    for (int d0 = 0; d0 < kWidth; d0 += 32) {
      const int d = d0 + lane;
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        const int w = first + i * p.chunk_warps;
        if (w < kWarps) {
          sum = fmaf(found.sums[w][g][d], weights[i], sum);
        }
      }
      if (d < p.head_dim && s.used == 1) {
        p.out[out_row * p.head_dim + d] = FromFloat<A>(sum * inverse);
      } else if (d < p.head_dim) {
        part[d] = sum;
      }
    }
    if (s.used > 1 && lane == 0) {
      part[p.head_dim] = max;
      part[p.head_dim + 1] = total;
    }
  }
}

// Whether this is the last of the blocks that share the sequence: it finds the others' parts in
// memory.
template <typename A>
__device__ __forceinline__ bool ArrivesLast(const Params<A>& p, int used, bool& last) {
  // This block's parts are in memory before its arrival counts.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* arrivals = p.arrivals + blockIdx.x;
    // Each split that has keys arrives once for every chunk of heads. Blocks without keys have left
    // before.
    last = atomicAdd(arrivals, 1) == used * static_cast<int>(gridDim.z) - 1;
    if (last) {
      // All have arrived, so that nobody else counts any more: ready for the next launch.
      *arrivals = 0;
    }
  }
  // The others' parts are read only after their arrivals were seen.
  __syncthreads();
  __threadfence();
  return last;
}

// After the warps have left what they found and the block has met: to the output, by way of the
// other blocks of the sequence if there are some. `last`: shared memory.
template <typename A, int kWarps, int GC, int kWidth>
__device__ __forceinline__ void JoinBlock(const Params<A>& p,
                                          const Stretch& s,
                                          const Found<kWarps, GC, kWidth>& found,
                                          bool& last) {
  JoinWarps(p, s, found);
  if (s.used == 1 || !ArrivesLast(p, s.used, last)) {
    return;
  }
  for (int h = static_cast<int>(threadIdx.x) / 32; h < p.group; h += kJoinHeads<kWidth> * kWarps) {
    JoinSplits<kWidth>(p, s.b * p.heads + s.kv * p.group, h, kWarps, static_cast<int>(gridDim.y),
                       s.used);
  }
}

}  // namespace hearth::kernels::cuda::cached
