// What the kernels of gated_gemm.h have in common: persistent blocks of three warpgroups. The first
// copies tiles of the operands to shared memory, a ring of stages ahead; the other two multiply
// them, and then apply the activation to what they have in registers.
//
// The blocks of a cluster have tiles of the same columns, one below the other, and share the tile
// of the weight: each copies its part of it to all.
#pragma once

#include "kernels/cuda/hopper.cuh"

namespace hearth::kernels::cuda::gated {

inline constexpr int kThreads = 3 * 128;
inline constexpr int kCluster = 2;
// Rows of clusters that are gone through together, column by column: what blocks that run at the
// same time read of both operands stays in the L2 cache.
inline constexpr int kPanel = 8;

struct Tiles {
  int32_t rows = 0;    // of clusters
  int32_t across = 0;  // columns of tiles
  int32_t depth = 0;   // stages of a tile
  int32_t ffn = 0;     // F
};

// A stage of kStagesAhead: rows of `a` and of `b`, 128 bytes of k each. kReaders: the warps of a
// block that read each stage.
template <int kStagesAhead, int kElementBytes, int kRowsOfA, int kRowsOfB, int kReadersOfStage>
struct Operands {
  static constexpr int kStages = kStagesAhead;
  static constexpr int kDepth = 128 / kElementBytes;  // elements along k
  static constexpr int kARows = kRowsOfA;
  static constexpr int kABytes = kRowsOfA * 128;
  static constexpr int kBBytes = kRowsOfB * 128;
  static constexpr int kReaders = kReadersOfStage;
  alignas(1024) uint8_t a[kStages][kABytes];
  alignas(1024) uint8_t b[kStages][kBBytes];
  TmaBarrier full[kStages];
  TmaBarrier empty[kStages];

  __device__ __forceinline__ void InitStages() {
    for (int i = 0; i < kStages; ++i) {
      // One thread arrives; the rest of the phase is the bytes that it has announced.
      full[i].Init(1);
      empty[i].Init(kReaders * kCluster);
    }
  }
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
  __device__ __forceinline__ void Skip(int slots) {
    const int to = slot + slots;
    slot = to % kSlots;
    parity ^= static_cast<uint32_t>(to / kSlots) & 1;
  }
};

// tile(row of tiles, column of tiles) for each `step`th tile of this block from its `first` on.
template <typename F>
__device__ __forceinline__ void ForEachTile(
    const Tiles& tiles, uint32_t rank, int32_t first_tile, int32_t step, const F& tile) {
  const int32_t count = tiles.rows * tiles.across;
  const auto clusters = static_cast<int32_t>(gridDim.x) / kCluster;
  const auto cluster = static_cast<int32_t>(blockIdx.x) / kCluster;
  for (int32_t i = cluster + first_tile * clusters; i < count; i += step * clusters) {
    // Down the rows of a panel first, then one column of tiles to the right.
    const int32_t first = i / (kPanel * tiles.across) * kPanel;
    const int32_t rows = min(kPanel, tiles.rows - first);
    const int32_t within = i - first * tiles.across;
    tile((first + within % rows) * kCluster + static_cast<int32_t>(rank), within / rows);
  }
}
template <typename F>
__device__ __forceinline__ void ForEachTile(const Tiles& tiles, uint32_t rank, const F& tile) {
  ForEachTile(tiles, rank, 0, 1, tile);
}

// The block's memory with its barriers, which the cluster may use from here on.
template <typename S>
__device__ __forceinline__ S& Prepare(uint8_t* memory) {
  S& s = SharedOf<S>(memory);
  if (threadIdx.x == 0) {
    s.InitBarriers();
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
      LoadTile(s.a[ring.slot], a, k * S::kDepth, row * S::kARows, full);
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

}  // namespace hearth::kernels::cuda::gated
