// The kernels of gated_gemm.h in BF16 (pipeline.cuh has what they share with others): both
// warpgroups that multiply do so at the same time, 64 rows each of a tile of 128 x 256.
#pragma once

#include "kernels/gated_gemm/pipeline.cuh"
#include "kernels/swiglu/arithmetic.cuh"

namespace hearth::kernels::cuda::gated {

inline constexpr int kTileRows = 128;
inline constexpr int kForwardCols = 128;  // of y in a tile: so many of gate and of up
inline constexpr int kBackwardCols = 256;

struct ForwardMaps {
  CUtensorMap x;  // boxes of 128 x 64
  CUtensorMap w;  // [2 F, K], boxes of 128 x 64
};
struct BackwardMaps {
  CUtensorMap d_out;  // boxes of 128 x 64
  CUtensorMap w;      // [K, F], boxes of 64 x 64
  CUtensorMap gate;   // boxes of 64 x 32, read and then written
  CUtensorMap up;
};
// [rows, ffn]
struct Output {
  Bf16* data;
  int64_t pitch;  // elements from row to row
};
struct ForwardOutputs {
  Output gate;
  Output up;
  Output y;
  int64_t rows;
};
// Both warpgroups read each stage.
template <int kStages>
struct Bf16Operands : Operands<kStages, 2, kTileRows, 256, 8> {
  __device__ __forceinline__ void InitBarriers() { this->InitStages(); }
};
using ForwardShared = Bf16Operands<4>;
inline constexpr int kDepth = ForwardShared::kDepth;

// Gate and up of a warpgroup's 64 rows and of 32 columns.
inline constexpr int kChunkCols = 32;
struct alignas(1024) Chunk {
  static constexpr int kBytes = 64 * kChunkCols * 2;
  uint8_t gate[kBytes];
  uint8_t up[kBytes];
};
// As many chunks as fit beside three stages: most of a tile waits when its products are done.
struct BackwardShared : Bf16Operands<3> {
  static constexpr int kChunks = 5;  // of a warpgroup
  Chunk chunks[2][kChunks];
  TmaBarrier chunk_full[2][kChunks];
  TmaBarrier chunk_empty[2][kChunks];

  __device__ __forceinline__ void InitBarriers() {
    InitStages();
    for (int group = 0; group < 2; ++group) {
      for (int i = 0; i < kChunks; ++i) {
        chunk_full[group][i].Init(1);
        chunk_empty[group][i].Init(1);
      }
    }
  }
};

// sums = the products of the warpgroup's rows of a tile.
template <bool kBAcrossK, typename S>
__device__ __forceinline__ void MultiplyTile(
    S& s, int group, int32_t depth, Ring<S::kStages>& ring, float (&sums)[128]) {
  constexpr uint64_t kAStep = 16 * 2 >> 4;
  // Descriptors count in 16 bytes. The next 16 of k are 32 bytes on in a row, or 16 rows of 128
  // bytes down.
  constexpr uint64_t kBStep = (kBAcrossK ? 16 * 128 : 16 * 2) >> 4;
  int before = 0;
  for (int32_t k = 0; k < depth; ++k) {
    s.full[ring.slot].Wait(ring.parity);
    const uint64_t a = OperandAlongK(SharedAddress(s.a[ring.slot]) + group * (S::kABytes / 2));
    const uint32_t b_at = SharedAddress(s.b[ring.slot]);
    const uint64_t b = kBAcrossK ? OperandAcrossK(b_at, kDepth * 128) : OperandAlongK(b_at);
    BeginProducts();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      // The first product of a tile overwrites the sums of the tile before.
      MultiplyBf16<kBAcrossK>(sums, a + i * kAStep, b + i * kBStep, k > 0 || i > 0);
    }
    CommitProducts();
    // All but the newest are done: the stage before can be filled again while this one is
    // multiplied.
    if (k > 0) {
      WaitProducts<1>();
      Release(s, before);
    }
    before = ring.slot;
    ring.Next();
  }
  WaitProducts<0>();
  Release(s, before);
}

// Where 16 rows of a warp belong: from `row` and `col` on of [rows, ffn].
struct Place {
  int64_t row;
  int64_t rows;
  int32_t col;
  int32_t ffn;
};
// Transposes among four lanes: each gives a word of four parts and gets the four words of one.
__device__ __forceinline__ uint4 GatherPart(const uint32_t (&words)[4]) {
  // A 4 x 4 transpose in two exchanges, with the neighbour and with the lane two on: each sends
  // what the other wants.
  const bool odd = (Lane() & 1) != 0;
  const bool high = (Lane() & 2) != 0;
  uint32_t pairs[4];  // two words each of parts `odd` and 2 + odd
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(0xFFFFFFFF, odd ? words[i] : words[i + 1], 1);
    pairs[i] = odd ? got : words[i];
    pairs[i + 1] = odd ? words[i + 1] : got;
  }
  uint32_t low[2];
  uint32_t top[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xFFFFFFFF, high ? pairs[i] : pairs[2 + i], 2);
    low[i] = high ? got : pairs[i];
    top[i] = high ? pairs[2 + i] : got;
  }
  return make_uint4(low[0], low[1], top[0], top[1]);
}

// gate, up and y of the warp's rows of a tile from the sums.
__device__ __forceinline__ void ForwardEpilogue(const float (&sums)[128],
                                                const ForwardOutputs& out,
                                                const Place& place) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = place.row + Lane() / 4 + half * 8;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint32_t gate[4];
      uint32_t up[4];
      uint32_t y[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        // The tile of w has 128 columns of gate and then 128 of up: a thread's sums of up are 64
        // further on.
        const int i = (c * 4 + part) * 4 + half * 2;
        gate[part] = PackPair(sums[i], sums[i + 1]);
        up[part] = PackPair(sums[64 + i], sums[64 + i + 1]);
        // From the rounded values, which are what the backward pass will read.
        y[part] = PackPair(SwigluOf<Bf16>(LowOf(gate[part]), LowOf(up[part])),
                           SwigluOf<Bf16>(HighOf(gate[part]), HighOf(up[part])));
      }
      // Each lane has had 4 bytes of four places. Now it has 16 in a row, which is one store.
      const uint4 gate8 = GatherPart(gate);
      const uint4 up8 = GatherPart(up);
      const uint4 y8 = GatherPart(y);
      const int32_t col = place.col + c * 32 + Lane() % 4 * 8;
      if (row < place.rows && col < place.ffn) {
        *reinterpret_cast<uint4*>(out.gate.data + row * out.gate.pitch + col) = gate8;
        *reinterpret_cast<uint4*>(out.up.data + row * out.up.pitch + col) = up8;
        *reinterpret_cast<uint4*>(out.y.data + row * out.y.pitch + col) = y8;
      }
    }
  }
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    ForwardKernel(const __grid_constant__ ForwardMaps maps, ForwardOutputs out, Tiles tiles) {
#if HEARTH_HOPPER_CODE
  extern __shared__ uint8_t memory[];
  auto& s = Prepare<ForwardShared>(memory);
  const uint32_t rank = ClusterRank();
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  if (group < 0) {
    // Copying takes few registers; the two warpgroups that multiply hold 128 sums a thread.
    GiveRegisters<40>();
    if (threadIdx.x == 0) {
      CopyOperands(s, maps.x, tiles, rank, [&](int slot, int32_t k, int32_t col) {
        // One half is of gate, the other of up.
        LoadTileToCluster(s.b[slot] + rank * (ForwardShared::kBBytes / 2), maps.w, k * kDepth,
                          static_cast<int32_t>(rank) * tiles.ffn + col * kForwardCols, s.full[slot],
                          (1U << kCluster) - 1);
      });
    }
  } else {
    TakeRegisters<232>();
    Ring<ForwardShared::kStages> ring;
    float sums[128];
    ForEachTile(tiles, rank, [&](int32_t row, int32_t col) {
      MultiplyTile<false>(s, group, tiles.depth, ring, sums);
      const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
      ForwardEpilogue(
          sums, out,
          {int64_t{row} * kTileRows + warp * 16, out.rows, col * kForwardCols, tiles.ffn});
    });
  }
  // A block that ends gives its memory back, which the other one may still write to or arrive at.
  ClusterSync();
#else
  __trap();
#endif
}

// One thread: gate and up of every chunk of every tile.
__device__ __forceinline__ void CopyChunks(BackwardShared& s,
                                           const BackwardMaps& maps,
                                           const Tiles& tiles,
                                           uint32_t rank) {
  Ring<BackwardShared::kChunks> ring;
  ForEachTile(tiles, rank, [&](int32_t row, int32_t col) {
    for (int c = 0; c < kBackwardCols / kChunkCols; ++c) {
      for (int group = 0; group < 2; ++group) {
        s.chunk_empty[group][ring.slot].Wait(ring.parity ^ 1);
        TmaBarrier& full = s.chunk_full[group][ring.slot];
        Chunk& chunk = s.chunks[group][ring.slot];
        full.ArriveAndExpect(2 * Chunk::kBytes);
        const int32_t x = col * kBackwardCols + c * kChunkCols;
        const int32_t y = row * kTileRows + group * 64;
        LoadTile(chunk.gate, maps.gate, x, y, full);
        LoadTile(chunk.up, maps.up, x, y, full);
      }
      ring.Next();
    }
  });
}

// The address in one matrix of a chunk of columns 8 part + 2 (lane % 4) and the next, in the row of
// sums[4 part + 2 half]. Rows of 64 bytes are swizzled too: part p of row r lies at p ^ (r / 2 %
// 4).
__device__ __forceinline__ uint32_t* PairAt(uint8_t* bytes, int half, int part) {
  const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + Lane() / 4 + half * 8;
  return reinterpret_cast<uint32_t*>(bytes + row * 64 + (part ^ row / 2 % 4) * 16) + Lane() % 4;
}

// The gradients of gate and up in their place; dy[kFirst] is the chunk's first.
template <int kFirst>
__device__ __forceinline__ void BackwardChunk(const float (&dy)[128], Chunk& chunk) {
  // All is read before anything is written, so that no read waits for a write.
  uint32_t gate[4][2];
  uint32_t up[4][2];
#pragma unroll
  for (int part = 0; part < 4; ++part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      gate[part][half] = *PairAt(chunk.gate, half, part);
      up[part][half] = *PairAt(chunk.up, half, part);
    }
  }
#pragma unroll
  for (int part = 0; part < 4; ++part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t g = gate[part][half];
      const uint32_t u = up[part][half];
      const int i = kFirst + part * 4 + half * 2;
      const float2 low = SwigluGradient<Bf16>(LowOf(g), LowOf(u), dy[i]);
      const float2 high = SwigluGradient<Bf16>(HighOf(g), HighOf(u), dy[i + 1]);
      *PairAt(chunk.gate, half, part) = PackPair(low.x, high.x);
      *PairAt(chunk.up, half, part) = PackPair(low.y, high.y);
    }
  }
}

// Where a warpgroup is in its chunks.
struct ChunkRing : Ring<BackwardShared::kChunks> {
  int before = -1;  // the slot of the last chunk, which TMA may still read
};

// The gradients of gate and up of the warpgroup's rows of a tile, from (x, y) on.
template <int kFirst = 0>
__device__ __forceinline__ void BackwardEpilogue(const float (&dy)[128],
                                                 BackwardShared& s,
                                                 const BackwardMaps& maps,
                                                 int group,
                                                 int32_t x,
                                                 int32_t y,
                                                 ChunkRing& ring) {
  Chunk& chunk = s.chunks[group][ring.slot];
  s.chunk_full[group][ring.slot].Wait(ring.parity);
  BackwardChunk<kFirst>(dy, chunk);
  // All 128 threads make their writes visible to TMA before they meet; only then one of them starts
  // the copy.
  FenceForTma();
  NamedBarrier(static_cast<uint32_t>(1 + group), 128);
  if (threadIdx.x % 128 == 0) {
    StoreTile(maps.gate, x, y, chunk.gate);
    StoreTile(maps.up, x, y, chunk.up);
    CommitStores();
    // All but the newest stores have read their memory: the chunk before can be filled again.
    WaitStoresRead<1>();
    if (ring.before >= 0) {
      s.chunk_empty[group][ring.before].Arrive();
    }
  }
  ring.before = ring.slot;
  ring.Next();
  // By recursion, so that `dy` is indexed by constants: in local memory it would cost far more.
  if constexpr (kFirst + 16 < 128) {
    BackwardEpilogue<kFirst + 16>(dy, s, maps, group, x + kChunkCols, y, ring);
  }
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    BackwardKernel(const __grid_constant__ BackwardMaps maps, Tiles tiles) {
#if HEARTH_HOPPER_CODE
  extern __shared__ uint8_t memory[];
  auto& s = Prepare<BackwardShared>(memory);
  const uint32_t rank = ClusterRank();
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  if (group < 0) {
    GiveRegisters<40>();
    if (threadIdx.x == 0) {
      CopyOperands(s, maps.d_out, tiles, rank, [&](int slot, int32_t k, int32_t col) {
        // A box of rows of 128 bytes is 64 columns wide. Each block copies half of the boxes to
        // both.
        constexpr int kParts = kBackwardCols / 64 / kCluster;
        for (int i = 0; i < kParts; ++i) {
          const int part = static_cast<int>(rank) * kParts + i;
          LoadTileToCluster(s.b[slot] + part * (64 * kDepth * 2), maps.w,
                            col * kBackwardCols + part * 64, k * kDepth, s.full[slot],
                            (1U << kCluster) - 1);
        }
      });
    } else if (threadIdx.x == 32) {
      CopyChunks(s, maps, tiles, rank);
    }
  } else {
    TakeRegisters<232>();
    Ring<BackwardShared::kStages> ring;
    ChunkRing chunks;
    float sums[128];
    ForEachTile(tiles, rank, [&](int32_t row, int32_t col) {
      MultiplyTile<true>(s, group, tiles.depth, ring, sums);
      BackwardEpilogue(sums, s, maps, group, col * kBackwardCols, row * kTileRows + group * 64,
                       chunks);
    });
    // The block's memory must not go before TMA has read it.
    if (threadIdx.x % 128 == 0) {
      WaitStores();
    }
  }
  ClusterSync();
#else
  __trap();
#endif
}

}  // namespace hearth::kernels::cuda::gated
