// What the kernels of cached attention share: which keys a block reads, and how what warps and
// blocks found becomes one, in a fixed order: warps, then blocks, by the block that comes last.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/attention/flash.cuh"
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

// `step`: keys that a block reads at a time.
template <typename A>
__device__ __forceinline__ Stretch StretchOf(const Params<A>& p, int step) {
  Stretch s;
  s.step = step;
  s.kv = blockIdx.x % p.kv_heads;
  s.b = blockIdx.x / p.kv_heads;
  // Within the cache whatever the positions say.
  s.seen = min(max(p.positions[s.b], 0), static_cast<int>(p.capacity) - 1) + 1;
  const int splits = gridDim.y;
  // Whole steps, so that few warps have nothing to do.
  const int length = static_cast<int>(CeilDiv(CeilDiv(s.seen, splits), s.step)) * s.step;
  s.used = static_cast<int>(CeilDiv(s.seen, length));
  s.begin = blockIdx.y * length;
  s.end = min(s.begin + length, s.seen);
  return s;
}

// The token's own key and value to the cache.
template <typename A>
__device__ __forceinline__ void KeepToken(const Params<A>& p, const A* row, int kv, int64_t at) {
  for (int d = threadIdx.x; d < p.head_dim; d += static_cast<int>(blockDim.x)) {
    // With several chunks of heads several blocks write it: the same bytes. Nobody reads it in this
    // launch: blocks take the token's key and value from its row.
    p.keys[at + d] = row[static_cast<int64_t>(p.heads + kv) * p.head_dim + d];
    p.values[at + d] = row[static_cast<int64_t>(p.heads + p.kv_heads + kv) * p.head_dim + d];
  }
}

// What the warps of a block found.
template <int kWarps, int GC, int kWidth>
struct Found {
  float sums[kWarps][GC][kWidth];
  float maxima[kWarps][GC];
  float totals[kWarps][GC];
};

// Joins the splits of query head `row` (of [B, Hq]) and writes element d.
template <typename A>
__device__ __forceinline__ void JoinSplits(const Params<A>& p, int64_t row, int splits, int used) {
  const float* from = p.partial + row * splits * (p.head_dim + 2);
  float max = -INFINITY;
  // Past L1, which may still hold what was there before the other blocks wrote.
  for (int s = 0; s < used; ++s) {
    max = fmaxf(max, __ldcg(from + s * (p.head_dim + 2) + p.head_dim));
  }
  for (int d = threadIdx.x % 32; d < p.head_dim; d += 32) {
    float sum = 0.0F;
    float total = 0.0F;
    for (int s = 0; s < used; ++s) {
      const float* part = from + s * (p.head_dim + 2);
      const float weight = Correction(__ldcg(part + p.head_dim), max);
      sum = fmaf(__ldcg(part + d), weight, sum);
      total = fmaf(__ldcg(part + p.head_dim + 1), weight, total);
    }
    p.out[row * p.head_dim + d] = FromFloat<A>(sum / total);
  }
}

// Joins the block's warps: to the output, or to this block's part of it.
template <typename A, int kWarps, int GC, int kWidth>
__device__ __forceinline__ void JoinWarps(const Params<A>& p,
                                          const Stretch& s,
                                          const Found<kWarps, GC, kWidth>& found) {
  const int first_head = static_cast<int>(blockIdx.z) * p.chunk_warps * GC;
  const int block_heads = min(p.chunk_warps * GC, p.group - first_head);
  for (int i = threadIdx.x; i < block_heads * p.head_dim; i += kWarps * 32) {
    const int h = i / p.head_dim;
    const int d = i % p.head_dim;
    const int g = h % GC;
    float max = -INFINITY;
    for (int w = h / GC; w < kWarps; w += p.chunk_warps) {
      max = fmaxf(max, found.maxima[w][g]);
    }
    // Warps of one chunk of heads are chunk_warps apart. Each of them has seen other keys.
    float sum = 0.0F;
    float total = 0.0F;
    for (int w = h / GC; w < kWarps; w += p.chunk_warps) {
      const float weight = Correction(found.maxima[w][g], max);
      sum = fmaf(found.sums[w][g][d], weight, sum);
      total = fmaf(found.totals[w][g], weight, total);
    }
    const int64_t out_row = s.b * p.heads + s.kv * p.group + first_head + h;
    if (s.used == 1) {
      p.out[out_row * p.head_dim + d] = FromFloat<A>(sum / total);
      continue;
    }
    float* part = p.partial + (out_row * gridDim.y + blockIdx.y) * (p.head_dim + 2);
    part[d] = sum;
    if (d == 0) {
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
  for (int h = static_cast<int>(threadIdx.x) / 32; h < p.group; h += kWarps) {
    JoinSplits(p, s.b * p.heads + s.kv * p.group + h, static_cast<int>(gridDim.y), s.used);
  }
}

}  // namespace hearth::kernels::cuda::cached
