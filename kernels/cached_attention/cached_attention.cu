// Two kernels: tensor_cores.cuh for bf16, as far as its shapes go, and the one here, which computes
// in fp32 for everything else. In this one a warp reads a stretch of one key/value head's keys and
// values for up to four of the query heads that share it. What the warps of a block and the blocks
// of a sequence found is joined in a fixed order (join.cuh), after the lanes of each warp.
#include <cmath>

#include "kernels/cached_attention/cached_attention.h"
#include "kernels/cached_attention/join.cuh"
#include "kernels/cached_attention/tensor_cores.cuh"
#include "kernels/cuda/context.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {
namespace {

using cached::Correction;
using cached::Params;
using cached::Stretch;
using cached::TokenHeads;

template <int GC, int kWidth>
using Found = cached::Found<8, GC, kWidth>;

constexpr char kOp[] = "cached_attention";
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kUnroll = 2;  // keys that a lane computes with at a time
constexpr int kStages = 4;  // such steps on their way from memory

// Eight elements from `d0` on; 0 behind the end of the head.
template <typename A>
__device__ __forceinline__ Raw8<A> LoadPart(const A* row, int d0, int head_dim, bool vectors) {
  if (vectors && d0 < head_dim) {
    return LoadRaw8(row + d0);
  }
  float x[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    x[e] = d0 + e < head_dim ? ToFloat(row[d0 + e]) : 0.0F;
  }
  return PackRaw8<A>(x);
}

// The same of a head of the token's row, which may have to be rotated.
template <typename A>
__device__ __forceinline__ Raw8<A> LoadRotated(const Params<A>& p,
                                               const TokenHeads& heads,
                                               const A* head,
                                               int d0) {
  if (!p.rotation.enabled) {
    return LoadPart(head, d0, p.head_dim, p.vectors);
  }
  float x[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    x[e] = d0 + e < p.head_dim ? heads.Value(head, d0 + e) : 0.0F;
  }
  return PackRaw8<A>(x);
}

// A running softmax: sums of values weighted with 2^(score - max), and of the weights.
template <int N>
struct Running {
  float max = -INFINITY;
  float total = 0.0F;
  float sum[N] = {};
};

// What lanes `offset` apart hold becomes one.
template <int N>
__device__ __forceinline__ void JoinLanes(int offset, Running<N>& mine) {
  const float other_max = __shfl_xor_sync(0xFFFFFFFF, mine.max, offset);
  const float other_total = __shfl_xor_sync(0xFFFFFFFF, mine.total, offset);
  const float max = fmaxf(mine.max, other_max);
  const float a = Correction(mine.max, max);
  const float b = Correction(other_max, max);
  mine.max = max;
  mine.total = mine.total * a + other_total * b;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    mine.sum[e] = mine.sum[e] * a + __shfl_xor_sync(0xFFFFFFFF, mine.sum[e], offset) * b;
  }
}

// Keys and values on their way, for bf16 that lies on 16-byte boundaries. Each lane copies what it
// reads itself, so that nobody waits for another: a ring of kStages steps in shared memory.
class Ring {
 public:
  static constexpr int kBytes = kStages * kUnroll * 2 * kThreads * 16;

  __device__ explicit Ring(unsigned char* memory)
      : at_(static_cast<uint32_t>(__cvta_generic_to_shared(memory)) + threadIdx.x * 16) {}
  // Copies 16 bytes from each; zeros where not `there`.
  __device__ __forceinline__ void Load(
      int stage, int u, bool there, const void* key, const void* value) const {
    Copy(Place(stage, u, 0), key, there);
    Copy(Place(stage, u, 1), value, there);
  }
  __device__ __forceinline__ void Commit() const { asm volatile("cp.async.commit_group;\n" ::); }
  // Until all but the newest kStages - 1 steps are there.
  __device__ __forceinline__ void Wait() const {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kStages - 1) : "memory");
  }
  template <typename A>
  __device__ __forceinline__ Raw8<A> Read(int stage, int u, int which) const {
    Raw8<A> raw;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(raw.words[0]), "=r"(raw.words[1]), "=r"(raw.words[2]), "=r"(raw.words[3])
                 : "r"(Place(stage, u, which)));
    return raw;
  }

 private:
  __device__ __forceinline__ uint32_t Place(int stage, int u, int which) const {
    return at_ + ((stage * kUnroll + u) * 2 + which) * kThreads * 16;
  }
  __device__ __forceinline__ static void Copy(uint32_t to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
  }

  uint32_t at_;
};

// This thread's part of a block's work. LPK lanes hold a key, GC query heads go by.
template <typename A, int LPK, int GC>
struct Walk {
  static constexpr int kKeys = 32 / LPK;  // of a warp at a time

  float q[GC][8];  // times scale and log2 e
  Running<8> heads[GC];

  // The first `count` of the keys that the warp's lanes hold, kKeys for each of kUnroll.
  __device__ __forceinline__ void Step(const Raw8<A> (&k)[kUnroll],
                                       const Raw8<A> (&v)[kUnroll],
                                       int count) {
    const int sub = threadIdx.x % 32 / LPK;
    float s[GC][kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float x[8];
      Unpack(k[u], x);
#pragma unroll
      for (int g = 0; g < GC; ++g) {
        float dot = 0.0F;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          dot = fmaf(q[g][e], x[e], dot);
        }
        // The LPK lanes of a key hold eight elements of it each. All of them get the score, because
        // each weighs its own part of v with it.
#pragma unroll
        for (int offset = LPK / 2; offset > 0; offset /= 2) {
          dot += __shfl_xor_sync(0xFFFFFFFF, dot, offset);
        }
        // Keys behind the end weigh 2^-inf = 0.
        s[g][u] = u * kKeys + sub < count ? dot : -INFINITY;
      }
    }
#pragma unroll
    for (int g = 0; g < GC; ++g) {
      Weigh(s[g], heads[g]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float x[8];
      Unpack(v[u], x);
#pragma unroll
      for (int g = 0; g < GC; ++g) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          heads[g].sum[e] = fmaf(s[g][u], x[e], heads[g].sum[e]);
        }
      }
    }
  }

 private:
  // Scores to weights; what was summed so far to the new maximum.
  __device__ __forceinline__ static void Weigh(float (&s)[kUnroll], Running<8>& head) {
    float max = head.max;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      max = fmaxf(max, s[u]);
    }
    // Where no key has been seen, -inf - -inf would be NaN.
    const float shift = max == -INFINITY ? 0.0F : max;
    const float correction = exp2f(head.max - shift);
    head.max = max;
    head.total *= correction;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      s[u] = exp2f(s[u] - shift);
      head.total += s[u];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      head.sum[e] *= correction;
    }
  }
};

// Adds the keys `first`, `first` + step ... below `end` to `walk`, in the warp's stretches.
template <typename A, int LPK, int GC>
__device__ __forceinline__ void WalkDirectly(const Params<A>& p,
                                             const A* keys,
                                             const A* values,
                                             int first,
                                             int step,
                                             int end,
                                             Walk<A, LPK, GC>& walk) {
  const int d0 = threadIdx.x % LPK * 8;
  const int sub = threadIdx.x % 32 / LPK;
  for (int at = first; at < end; at += step) {
    Raw8<A> k[kUnroll];
    Raw8<A> v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      // Keys behind the end are read as the last one and have no weight.
      const int key = min(at + u * walk.kKeys + sub, end - 1);
      k[u] = LoadPart(keys + static_cast<int64_t>(key) * p.head_dim, d0, p.head_dim, p.vectors);
      v[u] = LoadPart(values + static_cast<int64_t>(key) * p.head_dim, d0, p.head_dim, p.vectors);
    }
    walk.Step(k, v, end - at);
  }
}

template <typename A, int LPK, int GC>
__device__ __forceinline__ void WalkThrough(const Ring& ring,
                                            const Params<A>& p,
                                            const A* keys,
                                            const A* values,
                                            int first,
                                            int step,
                                            int end,
                                            Walk<A, LPK, GC>& walk) {
  const int d0 = threadIdx.x % LPK * 8;
  const int sub = threadIdx.x % 32 / LPK;
  const auto load = [&](int stage, int at) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int key = at + u * walk.kKeys + sub;
      // Copies behind the end write zeros, but their address must be one that can be read.
      const bool there = key < end && d0 < p.head_dim;
      const int64_t from = there ? static_cast<int64_t>(key) * p.head_dim + d0 : 0;
      ring.Load(stage, u, there, keys + from, values + from);
    }
    ring.Commit();
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    load(stage, first + stage * step);
  }
  int stage = 0;
  for (int at = first; at < end; at += step) {
    // Into the stage that was read last. Steps behind the end commit a group as well: Wait counts
    // groups.
    load((stage + kStages - 1) % kStages, at + (kStages - 1) * step);
    ring.Wait();
    Raw8<A> k[kUnroll];
    Raw8<A> v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      k[u] = ring.Read<A>(stage, u, 0);
      v[u] = ring.Read<A>(stage, u, 1);
    }
    walk.Step(k, v, end - at);
    stage = (stage + 1) % kStages;
  }
}

// The token itself to `walk`, from the cache, where the block has put it: in one warp of the block
// that shares each chunk of heads.
template <typename A, int LPK, int GC>
__device__ __forceinline__ void AddToken(const Params<A>& p,
                                         const A* key,
                                         const A* value,
                                         Walk<A, LPK, GC>& walk) {
  const int d0 = threadIdx.x % LPK * 8;
  Raw8<A> k[kUnroll] = {};
  Raw8<A> v[kUnroll] = {};
  k[0] = LoadPart(key, d0, p.head_dim, p.vectors);
  v[0] = LoadPart(value, d0, p.head_dim, p.vectors);
  // Only the first key of this step counts.
  walk.Step(k, v, 1);
}

// Joins a warp's lanes, and leaves what they found for the block.
template <int LPK, int GC, typename Heads>
__device__ __forceinline__ void LeaveFound(Heads& heads, Found<GC, LPK * 8>& found) {
  const int warp = threadIdx.x / 32;
  const int d0 = threadIdx.x % LPK * 8;
#pragma unroll
  for (int g = 0; g < GC; ++g) {
#pragma unroll
    for (int offset = LPK; offset < 32; offset *= 2) {
      JoinLanes(offset, heads[g]);
    }
    // Now all groups of LPK lanes hold the same; the first one writes it.
    if (threadIdx.x % 32 < LPK) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        found.sums[warp][g][d0 + e] = heads[g].sum[e];
      }
      if (d0 == 0) {
        found.maxima[warp][g] = heads[g].max;
        found.totals[warp][g] = heads[g].total;
      }
    }
  }
}

template <typename A, int LPK, int GC>
__device__ __forceinline__ void LoadQueries(const Params<A>& p,
                                            const TokenHeads& heads,
                                            const A* row,
                                            int kv,
                                            int chunk,
                                            float (&q)[GC][8]) {
#pragma unroll
  for (int g = 0; g < GC; ++g) {
    // Heads that the group lacks read the last one's query; nobody reads what comes of it.
    const int head = kv * p.group + min(chunk * GC + g, p.group - 1);
    Unpack(
        LoadRotated(p, heads, row + static_cast<int64_t>(head) * p.head_dim, threadIdx.x % LPK * 8),
        q[g]);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      q[g][e] *= p.scale_log2;
    }
  }
}

template <typename A, int LPK, int GC, bool kRing>
__global__ void __launch_bounds__(kThreads, 2) AttendKernel(const __grid_constant__ Params<A> p) {
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ Found<GC, LPK * 8> found;
  __shared__ float2 angles[LPK * 4];
  __shared__ bool last;
  const Stretch s = cached::StretchOf(p, kWarps / p.chunk_warps * (32 / LPK) * kUnroll);
  if (s.begin >= s.seen) {
    return;
  }
  const int64_t head_at = (s.b * p.kv_heads + s.kv) * p.capacity * p.head_dim;
  const A* row = p.qkv + s.b * (p.heads + 2 * p.kv_heads) * p.head_dim;
  const int warp = threadIdx.x / 32;
  const int key_warp = warp / p.chunk_warps;
  const TokenHeads heads(p.rotation, p.head_dim, angles);
  heads.Prepare<A>(s.seen - 1);
  Walk<A, LPK, GC> walk;
  LoadQueries<A, LPK, GC>(p, heads, row, s.kv, blockIdx.z * p.chunk_warps + warp % p.chunk_warps,
                          walk.q);
  // The token itself is read from the cache only after the others, when all of it is there.
  const bool newest = s.end == s.seen;
  const int64_t token_at = head_at + static_cast<int64_t>(s.seen - 1) * p.head_dim;
  if (newest) {
    cached::KeepToken(p, heads, row, s.kv, token_at);
    __syncthreads();
  }
  const int first = s.begin + key_warp * (32 / LPK) * kUnroll;
  const int end = newest ? s.end - 1 : s.end;
  if constexpr (kRing) {
    WalkThrough(Ring(ring), p, p.keys + head_at, p.values + head_at, first, s.step, end, walk);
  } else {
    WalkDirectly(p, p.keys + head_at, p.values + head_at, first, s.step, end, walk);
  }
  if (newest && key_warp == 0) {
    AddToken(p, p.keys + token_at, p.values + token_at, walk);
  }
  LeaveFound<LPK, GC>(walk.heads, found);
  __syncthreads();
  cached::JoinBlock(p, s, found, last);
}

template <typename A, int LPK, int GC>
absl::Status Launch(const Exec& exec, const Params<A>& p, int64_t batch, int64_t splits) {
  const dim3 grid(static_cast<unsigned>(batch * p.kv_heads), static_cast<unsigned>(splits),
                  static_cast<unsigned>(p.chunks / p.chunk_warps));
  if constexpr (sizeof(A) == 2) {
    if (p.vectors) {
      HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(AttendKernel<A, LPK, GC, true>,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       Ring::kBytes));
      AttendKernel<A, LPK, GC, true><<<grid, kThreads, Ring::kBytes, StreamOf(exec)>>>(p);
      return HEARTH_CUDA_LAUNCHED(kOp);
    }
  }
  AttendKernel<A, LPK, GC, false><<<grid, kThreads, 0, StreamOf(exec)>>>(p);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

template <typename A, int LPK>
absl::Status LaunchGroup(const Exec& exec, const Params<A>& p, int64_t batch, int64_t splits) {
  switch (CeilDiv(p.group, p.chunks)) {
    case 1:
      return Launch<A, LPK, 1>(exec, p, batch, splits);
    case 2:
      return Launch<A, LPK, 2>(exec, p, batch, splits);
    case 3:
      return Launch<A, LPK, 3>(exec, p, batch, splits);
    default:
      return Launch<A, LPK, 4>(exec, p, batch, splits);
  }
}

template <typename A>
Params<A> ParamsOf(const Exec& exec, const CachedAttentionArgs& args) {
  const CacheDims& d = args.dims;
  Params<A> p;
  p.qkv = args.qkv.as<A>();
  p.positions = args.positions.as<int32_t>();
  p.keys = args.keys.as<A>();
  p.values = args.values.as<A>();
  p.out = args.out.as<A>();
  p.arrivals = args.arrivals.as<int32_t>();
  p.partial = static_cast<float*>(exec.workspace.data);
  p.capacity = d.capacity;
  p.heads = static_cast<int>(d.heads);
  p.kv_heads = static_cast<int>(d.kv_heads);
  p.head_dim = static_cast<int>(d.head_dim);
  p.group = static_cast<int>(d.heads / d.kv_heads);
  p.chunks = 1;
  const double scale =
      args.scale != 0.0 ? args.scale : 1.0 / std::sqrt(static_cast<double>(d.head_dim));
  p.scale_log2 = static_cast<float>(scale) * kLog2e;
  p.vectors = d.head_dim % 8 == 0 && Aligned16(p.qkv) && Aligned16(p.keys) && Aligned16(p.values);
  p.rotation = RotationOf(args.rope, {d.heads, d.kv_heads, d.head_dim}, args.positions);
  return p;
}

template <typename A>
absl::Status RunPlain(const Exec& exec, Params<A> p, int64_t batch, int64_t splits) {
  // A warp has registers for four heads. Chunks are a power of two, so that a block's eight warps
  // hold whole sets of them.
  while (p.chunks * 4 < p.group) {
    p.chunks *= 2;
  }
  p.chunk_warps = p.chunks < kWarps ? p.chunks : kWarps;
  if (p.head_dim <= 64) {
    return LaunchGroup<A, 8>(exec, p, batch, splits);
  }
  return p.head_dim <= 128 ? LaunchGroup<A, 16>(exec, p, batch, splits)
                           : LaunchGroup<A, 32>(exec, p, batch, splits);
}

// A block copies one row of one sequence.
template <typename A>
__global__ void __launch_bounds__(128) FillKernel(const A* qkv,
                                                  const int32_t* lengths,
                                                  A* keys,
                                                  A* values,
                                                  int sequence,
                                                  int64_t capacity,
                                                  int heads,
                                                  int kv_heads,
                                                  int head_dim) {
  const int64_t b = blockIdx.x / sequence;
  const int r = blockIdx.x % sequence;
  if (r >= lengths[b] || r >= capacity) {
    return;
  }
  const int width = kv_heads * head_dim;
  const A* row = qkv + static_cast<int64_t>(blockIdx.x) * (heads + 2 * kv_heads) * head_dim +
                 static_cast<int64_t>(heads) * head_dim;
  for (int i = threadIdx.x; i < width; i += 128) {
    const int64_t to = ((b * kv_heads + i / head_dim) * capacity + r) * head_dim + i % head_dim;
    keys[to] = row[i];
    values[to] = row[width + i];
  }
}

template <typename A>
absl::Status Fill(const Exec& exec, const FillCacheArgs& args) {
  const CacheDims& d = args.dims;
  FillKernel<A><<<static_cast<unsigned>(d.batch * args.sequence), 128, 0, StreamOf(exec)>>>(
      args.qkv.as<A>(), args.lengths.as<int32_t>(), args.keys.as<A>(), args.values.as<A>(),
      static_cast<int>(args.sequence), d.capacity, static_cast<int>(d.heads),
      static_cast<int>(d.kv_heads), static_cast<int>(d.head_dim));
  return HEARTH_CUDA_LAUNCHED("fill_cache");
}

}  // namespace

size_t CachedAttentionWorkspaceBytes(const Exec& exec, const CachedAttentionArgs& args) {
  return SplitWorkspaceBytes(args.dims, SplitsOf(args, exec.cuda->gpu().multiprocessors));
}

absl::Status CachedAttention(const Exec& exec, const CachedAttentionArgs& args) {
  if (args.dims.head_dim > kMaxHeadDim) {
    return absl::UnimplementedError("cached_attention: head_dim on a GPU is at most 256");
  }
  const int64_t splits = SplitsOf(args, exec.cuda->gpu().multiprocessors);
  if (args.qkv.dtype != DType::kBF16) {
    return RunPlain(exec, ParamsOf<float>(exec, args), args.dims.batch, splits);
  }
  const Params<Bf16> p = ParamsOf<Bf16>(exec, args);
  if (!cached::TensorCoresTake(p) || CachedAttentionAsked("plain")) {
    return RunPlain(exec, p, args.dims.batch, splits);
  }
  Exec turn = exec;
  turn.early_start &= !CachedAttentionAsked("late");
  return cached::RunTensorCores(turn, p, args.dims.batch, splits);
}

absl::Status FillCache(const Exec& exec, const FillCacheArgs& args) {
  return args.qkv.dtype == DType::kBF16 ? Fill<Bf16>(exec, args) : Fill<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
