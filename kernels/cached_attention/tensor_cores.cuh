// Cached attention on tensor cores, for bf16. Up to 16 query heads that share a key/value head are
// the rows of a product; a warp takes a tile of keys at a time, by way of shared memory of its own,
// so that no warp waits for another. The kernel is launched in turn (launch.cuh): before the kernel
// before it has ended it reads the positions and the older keys and values, which earlier passes
// have written, and computes the angles of the rotation. All arithmetic but the products is that of
// the kernel for whole sequences (attention/flash_forward.cu), probabilities rounded to bf16
// included.
#pragma once

#include "common/base/status_macros.h"
#include "kernels/attention/flash.cuh"
#include "kernels/cached_attention/join.cuh"
#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda::cached {

constexpr int kTeam = 4;               // warps of a block
constexpr int kWideTeam = 8;           // of a block that has a multiprocessor to itself
constexpr int kTeamStages = 2;         // tiles of a warp on their way or in use
constexpr int kTileBytes = 4096;       // of a tile's keys, and of its values
constexpr int kMostQueries = 16;       // rows of a product
constexpr int kTensorCoreWidth = 128;  // largest head

template <int D>
constexpr int kTileKeys = kTileBytes / (2 * D);

template <int kWarps>
constexpr int kTeamBytes = kWarps* kTeamStages * 2 * kTileBytes;

// A warp's part of the work. Lane 4 g + t holds row g of the queries and, with two halves, row
// g + 8.
template <int D, int kHalves>
class TeamWalk {
 public:
  static constexpr int kKeys = kTileKeys<D>;
  static constexpr int kChunks = D / 8;             // of 16 bytes, a row of a tile
  static constexpr int kRowsAtOnce = 32 / kChunks;  // that the lanes copy
  static_assert(kRowsAtOnce > 0 && kKeys % kRowsAtOnce == 0);

  __device__ __forceinline__ TeamWalk(const Params<Bf16>& p,
                                      const TokenHeads& heads,
                                      const Stretch& s,
                                      const Bf16* row,
                                      uint32_t shared)
      : p_(p),
        heads_(heads),
        shared_(shared + threadIdx.x / 32 * (kTeamStages * 2 * kTileBytes)),
        keys_(p.keys + HeadAt(p, s)),
        values_(p.values + HeadAt(p, s)),
        own_row_(row + static_cast<int64_t>(p.heads + s.kv) * p.head_dim),
        newest_(s.seen - 1),
        row_(static_cast<int>(threadIdx.x) % 32 / kChunks),
        chunk_(static_cast<int>(threadIdx.x) % kChunks),
        bytes_(chunk_ * 8 < p.head_dim ? 16 : 0) {
    Clear(sums_);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      max_[half] = -INFINITY;
      total_[half] = 0.0F;
    }
  }

  // Asks for the first tiles of the keys `first`, `first` + step ... below `end`. All of them are
  // in the cache but the token itself, which the previous kernel makes.
  __device__ __forceinline__ void Begin(int first, int step, int end) const {
#pragma unroll
    for (int stage = 0; stage < kTeamStages; ++stage) {
      LoadTile(stage, first + stage * step, end);
    }
  }

  // The token's key and value, rotated, in the warp among whose keys it is: to registers and, for
  // later passes, to the cache. After WaitForPrevious. With several chunks of query heads several
  // blocks write the same bytes. Nobody reads them from the cache in this launch.
  __device__ __forceinline__ void TakeToken(int first, int step, int end) {
    const int at = newest_ - newest_ % kKeys;
    if (newest_ >= end || (at - first) % step != 0 || newest_ % kRowsAtOnce != row_ ||
        bytes_ == 0) {
      return;
    }
    const int64_t to = static_cast<int64_t>(newest_) * p_.head_dim + chunk_ * 8;
    own_[1] = LoadRaw8(own_row_ + static_cast<int64_t>(p_.kv_heads) * p_.head_dim + chunk_ * 8);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      own_[0].words[w] = heads_.Word(own_row_, chunk_ * 8 + 2 * w);
    }
    StoreRaw8(keys_ + to, own_[0]);
    StoreRaw8(values_ + to, own_[1]);
  }

  // The queries of the group's heads from 16 `chunk` on; after WaitForPrevious.
  __device__ __forceinline__ void LoadQueries(const Bf16* row, int kv, int chunk) {
    const int64_t head = kv * p_.group + chunk * kMostQueries;
    FillQueries(row + head * p_.head_dim, min(p_.group - chunk * kMostQueries, kMostQueries));
  }

  // All those keys, a tile at each; after Begin with the same.
  __device__ __forceinline__ void Walk(int first, int step, int end) {
    int stage = 0;
    for (int at = first; at < end; at += step) {
      // All but the newest copies are there; every lane says so of its own before any lane reads.
      asm volatile("cp.async.wait_group %0;\n" ::"n"(kTeamStages - 1) : "memory");
      if (newest_ >= at && newest_ < min(at + kKeys, end)) {
        PutToken(stage, newest_ - at);
      }
      __syncwarp();
      Step(stage, end - at);
      // Nobody reads the tile any more.
      __syncwarp();
      LoadTile(stage, at + kTeamStages * step, end);
      stage = (stage + 1) % kTeamStages;
    }
    WaitForCopies();
  }

  // What the warp found, for the block. Called after all warps have left the tiles, over which
  // `found` lies.
  template <int kWarps>
  __device__ __forceinline__ void Leave(Found<kWarps, kMostQueries, D>& found) const {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row = half * 8 + lane / 4;
      float total = total_[half];
      total += __shfl_xor_sync(0xFFFFFFFF, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFF, total, 2);
      if (lane % 4 == 0) {
        found.maxima[warp][row] = max_[half];
        found.totals[warp][row] = total;
      }
#pragma unroll
      for (int dt = 0; dt < D / 8; ++dt) {
        *reinterpret_cast<float2*>(&found.sums[warp][row][dt * 8 + lane % 4 * 2]) =
            make_float2(sums_[0][dt][2 * half], sums_[0][dt][2 * half + 1]);
      }
    }
  }

 private:
  static __device__ __forceinline__ int64_t HeadAt(const Params<Bf16>& p, const Stretch& s) {
    return (s.b * p.kv_heads + s.kv) * p.capacity * p.head_dim;
  }
  __device__ __forceinline__ uint32_t TileAt(int stage, int which) const {
    return shared_ + (stage * 2 + which) * kTileBytes;
  }

  // As the left operand of products: rows behind `rows` and columns behind the head are zeros.
  __device__ __forceinline__ void FillQueries(const Bf16* from, int rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int kt = 0; kt < D / 16; ++kt) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i % 2 * 8;
        const int d = kt * 16 + i / 2 * 8 + lane % 4 * 2;
        queries_[0][kt][i] = row < rows && d < p_.head_dim
                                 ? heads_.Word(from + static_cast<int64_t>(row) * p_.head_dim, d)
                                 : 0U;
      }
    }
  }

  // Whether a tile is in the cache and the stretch, the token itself not among it.
  __device__ __forceinline__ bool IsWhole(int at, int end) const {
    return at + kKeys <= min(end, newest_);
  }
  // Keys and values from `at` on, as far as `end`. Always one group of copies.
  __device__ __forceinline__ void LoadTile(int stage, int at, int end) const {
    if (IsWhole(at, end)) {
      LoadWhole(stage, at);
    } else if (at < end) {
      LoadPart(stage, at, min(end, newest_));
    }
    CommitCopies();
  }
  // Where this lane's chunk of row row_ + `rows` is in a tile; `rows`: a multiple of kRowsAtOnce,
  // as whose bits row_ has none.
  __device__ __forceinline__ uint32_t PlaceAt(int stage, int which, int rows) const {
    return TileAt(stage, which) + row_ * (D * 2) + (((chunk_ ^ row_) ^ (rows & 7)) << 4) +
           rows * (D * 2);
  }
  // A tile of the cache: few instructions, as one of these is on the way to every key.
  __device__ __forceinline__ void LoadWhole(int stage, int at) const {
    // Copies of no bytes write zeros, but their address must be one that can be read.
    const int64_t from =
        static_cast<int64_t>(at + row_) * p_.head_dim + (bytes_ > 0 ? chunk_ * 8 : 0);
    const Bf16* key = keys_ + from;
    const Bf16* value = values_ + from;
#pragma unroll
    for (int rows = 0; rows < kKeys; rows += kRowsAtOnce) {
      Copy(PlaceAt(stage, 0, rows), key, bytes_);
      Copy(PlaceAt(stage, 1, rows), value, bytes_);
      key += kRowsAtOnce * p_.head_dim;
      value += kRowsAtOnce * p_.head_dim;
    }
  }
  // The last tile: zeros from `end` on, which is at most the token itself.
  __device__ __forceinline__ void LoadPart(int stage, int at, int end) const {
#pragma unroll
    for (int rows = 0; rows < kKeys; rows += kRowsAtOnce) {
      const int key = at + rows + row_;
      const bool there = key < end && bytes_ > 0;
      const int64_t from = there ? static_cast<int64_t>(key) * p_.head_dim + chunk_ * 8 : 0;
      Copy(PlaceAt(stage, 0, rows), keys_ + from, there ? 16 : 0);
      Copy(PlaceAt(stage, 1, rows), values_ + from, there ? 16 : 0);
    }
  }
  // The token itself to its row of a tile. The lane wrote zeros there: those copies have ended.
  __device__ __forceinline__ void PutToken(int stage, int row) const {
    if (row % kRowsAtOnce == row_ && bytes_ > 0) {
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const Raw8<Bf16>& own = own_[which];
        asm volatile(
            "st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(PlaceAt(stage, which, row - row_)),
            "r"(own.words[0]), "r"(own.words[1]), "r"(own.words[2]), "r"(own.words[3])
            : "memory");
      }
    }
  }
  static __device__ __forceinline__ void Copy(uint32_t to, const Bf16* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  }

  // The first `count` keys of a tile.
  __device__ __forceinline__ void Step(int stage, int count) {
    float s[1][kKeys / 8][4];
    Clear(s);
    MultiplyByRows<D>(queries_, TileAt(stage, 0), s);
    const int column0 = threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float max = max_[half];
      const float old_max = max;
#pragma unroll
      for (int nt = 0; nt < kKeys / 8; ++nt) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = s[0][nt][2 * half + e];
          score = column0 + nt * 8 + e < count ? score * p_.scale_log2 : -INFINITY;
          max = fmaxf(max, score);
        }
      }
      // The four lanes of a row must agree on the maximum; their totals stay apart until Leave.
      max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFF, max, 1));
      max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFF, max, 2));
      max_[half] = max;
      // Where nothing has been seen, -inf - -inf would be NaN.
      const float shift = max == -INFINITY ? 0.0F : max;
      const float correction = Exp2(old_max - shift);
      total_[half] *= correction;
#pragma unroll
      for (int nt = 0; nt < kKeys / 8; ++nt) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& weight = s[0][nt][2 * half + e];
          weight = Exp2(weight - shift);
          total_[half] += weight;
        }
      }
#pragma unroll
      for (int dt = 0; dt < D / 8; ++dt) {
        sums_[0][dt][2 * half] *= correction;
        sums_[0][dt][2 * half + 1] *= correction;
      }
    }
    // Without the second half its scores are products with zeros: they weigh nothing as they are.
    AddProduct<D>(s, TileAt(stage, 1), sums_);
  }

  const Params<Bf16>& p_;
  const TokenHeads& heads_;
  const uint32_t shared_;
  Bf16* const keys_;
  Bf16* const values_;
  const Bf16* const own_row_;  // key of the token itself
  const int newest_;           // position of the token itself
  const int row_;              // of a tile, that the lane copies first
  const int chunk_;            // of the row
  const int bytes_;            // 0 where the chunk is behind the head
  Raw8<Bf16> own_[2] = {};     // the lane's chunk of the token's key and value, after TakeToken
  uint32_t queries_[1][D / 16][4];
  float sums_[1][D / 8][4];
  float max_[kHalves];  // of scores times log2 e
  float total_[kHalves];
};

template <int D, int kHalves, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kWarps == kTeam ? 3 : 1)
    TeamKernel(const __grid_constant__ Params<Bf16> p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ __align__(16) float2 angles[D / 2];
  __shared__ bool last;
  const Stretch s = StretchOf(p, kWarps * kTileKeys<D>);
  if (s.begin >= s.seen) {
    return;
  }
  const Bf16* row = p.qkv + s.b * (p.heads + 2 * p.kv_heads) * p.head_dim;
  const TokenHeads heads(p.rotation, p.head_dim, angles);
  TeamWalk<D, kHalves> walk(p, heads, s, row, SharedAddress(memory));
  const int first = s.begin + static_cast<int>(threadIdx.x) / 32 * kTileKeys<D>;
  walk.Begin(first, s.step, s.end);
  heads.Prepare<Bf16>(s.seen - 1);
  // Blocks without keys have not waited; those of a sequence's first stretch always have keys.
  TakeTurn();
  walk.TakeToken(first, s.step, s.end);
  walk.LoadQueries(row, s.kv, static_cast<int>(blockIdx.z));
  walk.Walk(first, s.step, s.end);
  auto& found = *reinterpret_cast<Found<kWarps, kMostQueries, D>*>(memory);
  static_assert(sizeof(found) <= kTeamBytes<kWarps>, "what the warps found lies over their tiles");
  __syncthreads();
  walk.Leave(found);
  __syncthreads();
  JoinBlock(p, s, found, last);
}

template <int D, int kHalves, int kWarps>
absl::Status LaunchTeam(const Exec& exec, const Params<Bf16>& p, int64_t batch, int64_t splits) {
  const auto kernel = TeamKernel<D, kHalves, kWarps>;
  constexpr int kBytes = kTeamBytes<kWarps>;
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  // As many blocks as have room: their copies under way are what hides the way to memory.
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  const dim3 grid(static_cast<unsigned>(batch * p.kv_heads), static_cast<unsigned>(splits),
                  static_cast<unsigned>(p.chunks));
  return LaunchInTurn(exec, "cached_attention", kernel, {grid, kWarps * 32, kBytes}, p);
}

// Where a block has a multiprocessor to itself and all keys of its sequence, four warps leave it
// waiting: of 384 keys 128 wide each would take six tiles of about 1000 cycles (products that
// depend on one another, shuffles, copies), 3.5 us of which little passes beside another warp's,
// while the bytes take 8.4 us. Eight warps take three each. A block of a divided sequence has a
// tile or two for each of four warps already.
inline bool TakesWideTeam(const Exec& exec, int64_t blocks, int64_t splits) {
  return splits == 1 && blocks <= exec.cuda->gpu().multiprocessors &&
         exec.cuda->gpu().shared_memory_bytes >= kTeamBytes<kWideTeam> + 4096 &&
         !CachedAttentionAsked("narrow");
}

inline bool TensorCoresTake(const Params<Bf16>& p) {
  return p.vectors && p.head_dim <= kTensorCoreWidth;
}

template <int D, int kHalves>
absl::Status LaunchTeamOfKeys(const Exec& exec,
                              const Params<Bf16>& p,
                              int64_t batch,
                              int64_t splits) {
  return TakesWideTeam(exec, batch * p.kv_heads * p.chunks, splits)
             ? LaunchTeam<D, kHalves, kWideTeam>(exec, p, batch, splits)
             : LaunchTeam<D, kHalves, kTeam>(exec, p, batch, splits);
}

// For what they take; chunks of p are its own.
inline absl::Status RunTensorCores(const Exec& exec,
                                   Params<Bf16> p,
                                   int64_t batch,
                                   int64_t splits) {
  p.chunks = static_cast<int>(CeilDiv(p.group, kMostQueries));
  const bool halves = p.group > kMostQueries / 2;
  if (p.head_dim <= 64) {
    return halves ? LaunchTeamOfKeys<64, 2>(exec, p, batch, splits)
                  : LaunchTeamOfKeys<64, 1>(exec, p, batch, splits);
  }
  return halves ? LaunchTeamOfKeys<128, 2>(exec, p, batch, splits)
                : LaunchTeamOfKeys<128, 1>(exec, p, batch, splits);
}

}  // namespace hearth::kernels::cuda::cached
