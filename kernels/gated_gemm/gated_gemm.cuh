// The kernels of gated_gemm.h: persistent blocks of three warpgroups. The first copies tiles of the
// operands to shared memory, kStages ahead. The other two multiply, 64 rows each of a tile of 128 x
// 256, and then apply the activation to what they have in registers.
//
// The blocks of a cluster have tiles of the same columns, one below the other, and share the tile
// of the weight: each copies its part of it to all.
#pragma once

#include "kernels/cuda/hopper.cuh"
#include "kernels/swiglu/arithmetic.cuh"

namespace hearth::kernels::cuda::gated {

inline constexpr int kTileRows = 128;
inline constexpr int kDepth = 64;  // of a stage, along k
inline constexpr int kThreads = 3 * 128;
inline constexpr int kCluster = 2;
inline constexpr int kForwardCols = 128;  // of y in a tile: so many of gate and of up
inline constexpr int kBackwardCols = 256;
// Rows of clusters that are gone through together, column by column: what blocks that run at the
// same time read of both operands stays in the L2 cache.
inline constexpr int kPanel = 8;

struct Tiles {
  int32_t rows = 0;    // of clusters
  int32_t across = 0;  // columns of tiles
  int32_t depth = 0;   // stages of a tile
  int32_t ffn = 0;     // F
};

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
// The operands of kStagesAhead stages.
template <int kStagesAhead>
struct Operands {
  static constexpr int kStages = kStagesAhead;
  static constexpr int kABytes = kTileRows * kDepth * 2;
  static constexpr int kBBytes = 256 * kDepth * 2;
  alignas(1024) uint8_t a[kStages][kABytes];
  alignas(1024) uint8_t b[kStages][kBBytes];
  TmaBarrier full[kStages];
  TmaBarrier empty[kStages];
};
using ForwardShared = Operands<4>;

// Gate and up of a warpgroup's 64 rows and of 32 columns.
inline constexpr int kChunkCols = 32;
struct alignas(1024) Chunk {
  static constexpr int kBytes = 64 * kChunkCols * 2;
  uint8_t gate[kBytes];
  uint8_t up[kBytes];
};
// As many chunks as fit beside three stages: most of a tile waits when its products are done.
struct BackwardShared : Operands<3> {
  static constexpr int kChunks = 5;  // of a warpgroup
  Chunk chunks[2][kChunks];
  TmaBarrier chunk_full[2][kChunks];
  TmaBarrier chunk_empty[2][kChunks];
};

// The block's memory, aligned; the launch asks for 1,024 bytes more.
template <typename S>
__device__ __forceinline__ S& SharedOf(uint8_t* memory) {
  // The runtime aligns dynamic shared memory to less than swizzled tiles need.
  const uint32_t past = SharedAddress(memory) % 1024;
  return *reinterpret_cast<S*>(memory + (past == 0 ? 0 : 1024 - past));
}

// A position in a ring of kSlots: the slot, and the parity of its phase.
template <int kSlots>
struct Ring {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Next() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// tile(row of tiles, column of tiles) for each tile of this block.
template <typename F>
__device__ __forceinline__ void ForEachTile(const Tiles& tiles, uint32_t rank, const F& tile) {
  const int32_t count = tiles.rows * tiles.across;
  const auto clusters = static_cast<int32_t>(gridDim.x) / kCluster;
  for (int32_t i = static_cast<int32_t>(blockIdx.x) / kCluster; i < count; i += clusters) {
    // Down the rows of a panel first, then one column of tiles to the right.
    const int32_t first = i / (kPanel * tiles.across) * kPanel;
    const int32_t rows = min(kPanel, tiles.rows - first);
    const int32_t within = i - first * tiles.across;
    tile((first + within % rows) * kCluster + static_cast<int32_t>(rank), within / rows);
  }
}

template <int kStages>
__device__ __forceinline__ void InitBarriers(Operands<kStages>& s) {
  for (int i = 0; i < kStages; ++i) {
    // One thread arrives; the rest of the phase is the bytes that it has announced.
    s.full[i].Init(1);
    s.empty[i].Init(8 * kCluster);  // warps that multiply
  }
}
__device__ __forceinline__ void InitBarriers(BackwardShared& s) {
  InitBarriers<BackwardShared::kStages>(s);
  for (int group = 0; group < 2; ++group) {
    for (int i = 0; i < BackwardShared::kChunks; ++i) {
      s.chunk_full[group][i].Init(1);
      s.chunk_empty[group][i].Init(1);
    }
  }
}

// The block's memory with its barriers, which the cluster may use from here on.
template <typename S>
__device__ __forceinline__ S& Prepare(uint8_t* memory) {
  S& s = SharedOf<S>(memory);
  if (threadIdx.x == 0) {
    InitBarriers(s);
    FenceBarrierInit();
  }
  // No block may copy into another's memory, or arrive at its barriers, before they are
  // initialised.
  ClusterSync();
  return s;
}

// One thread: every stage of every tile. load_b(stage of shared memory, k, column of tiles).
template <typename S, typename LoadB>
__device__ __forceinline__ void CopyOperands(
    S& s, const CUtensorMap& a, const Tiles& tiles, uint32_t rank, const LoadB& load_b) {
  Ring<S::kStages> ring;
  ForEachTile(tiles, rank, [&](int32_t row, int32_t col) {
    for (int32_t k = 0; k < tiles.depth; ++k) {
      // In the first round nothing has to be waited for: the phase before a barrier's first counts
      // as over.
      s.empty[ring.slot].Wait(ring.parity ^ 1);
      TmaBarrier& full = s.full[ring.slot];
      // The bytes of the whole stage, whichever block of the cluster sends them.
      full.ArriveAndExpect(S::kABytes + S::kBBytes);
      LoadTile(s.a[ring.slot], a, k * kDepth, row * kTileRows, full);
      load_b(ring.slot, k, col);
      ring.Next();
    }
  });
}

__device__ __forceinline__ int Lane() {
  return static_cast<int>(threadIdx.x) % 32;
}

// This warp has read the stage.
template <typename S>
__device__ __forceinline__ void Release(S& s, int stage) {
  // In all blocks of the cluster, because each of them writes into this one's stage.
  if (Lane() < kCluster) {
    s.empty[stage].ArriveAt(static_cast<uint32_t>(Lane()));
  }
}

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

__device__ __forceinline__ uint32_t PackPair(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ float LowOf(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float HighOf(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000);
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
