// What the FP8 kernels of gated_gemm.h have in common. The two warpgroups that multiply take turns:
// while one applies the activation to a tile, the other has the tensor cores for its own. In FP8
// the products of a tile take hardly longer than the activation.
#pragma once

#include "kernels/cuda/kept.cuh"
#include "kernels/gated_gemm/pipeline.cuh"
#include "kernels/gated_gemm/weight_boxes.h"

namespace hearth::kernels::cuda::gated {

// Each stage is read by one warpgroup alone.
template <int kStages, int kRowsOfA, int kRowsOfB>
struct Fp8Operands : Operands<kStages, 1, kRowsOfA, kRowsOfB, 4> {
  TmaBarrier turn[2];  // of each warpgroup

  __device__ __forceinline__ void InitBarriers() {
    this->InitStages();
    for (TmaBarrier& barrier : turn) {
      barrier.Init(4);  // warps of the other warpgroup
    }
  }
};

// One thread: every stage of every tile. Each block of a cluster copies half of the weight's rows
// to both (weight_boxes.h).
template <typename S>
__device__ __forceinline__ void CopyFp8Operands(
    S& s, const CUtensorMap& a, const CUtensorMap& w, const Tiles& tiles, uint32_t rank) {
  CopyOperands(s, a, tiles, rank, [&](int slot, int32_t k, int32_t col) {
    const int32_t at[5] = {k * S::kDepth, 0, col * kThreadsOfRow, 0, static_cast<int32_t>(rank)};
    LoadBoxToCluster(s.b[slot] + rank * (S::kBBytes / 2), w, at, s.full[slot],
                     (1U << kCluster) - 1);
  });
}

// 0 or 1; -1: the warpgroup that copies. By a shuffle, so that the compiler sees that it is the
// same in a whole warp: descriptors are in uniform registers then.
__device__ __forceinline__ int Fp8Group() {
  return static_cast<int>(__shfl_sync(0xFFFFFFFF, threadIdx.x, 0)) / 128 - 1;
}

// Where a warpgroup is in the stages, and when it has its next turn.
template <typename S>
struct Fp8Position {
  Ring<S::kStages> ring;
  uint32_t turn_parity;

  // The first turn is the first warpgroup's: the phase before a barrier's first counts as over.
  __device__ __forceinline__ Fp8Position(int group, const Tiles& tiles)
      : turn_parity(group == 0 ? 1 : 0) {
    ring.Skip(group * tiles.depth);
  }
};

// Until the other warpgroup's products are on their way. The barriers of stages need it, too: all
// of the tile before have been full then, so a stage's phase is at most one behind the one that is
// waited for.
template <typename S>
__device__ __forceinline__ void TakeTurn(S& s, int group, Fp8Position<S>& at) {
  s.turn[group].Wait(at.turn_parity);
  at.turn_parity ^= 1;
}
template <typename S>
__device__ __forceinline__ void PassTurn(S& s, int group) {
  if (Lane() == 0) {
    s.turn[1 - group].Arrive();
  }
}

// 16 columns of a row as they lie in memory.
using Columns16 = Raw8<Bf16>[2];

__device__ __forceinline__ float2 PairOf(const Columns16& columns, int i) {
  const uint32_t word = columns[i / 4].words[i % 4];
  return make_float2(LowOf(word), HighOf(word));
}
template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint4 QuantizeColumns(const Columns16& columns, float scale) {
  float v[2][8];
  Unpack(columns[0], v[0]);
  Unpack(columns[1], v[1]);
  const uint2 low = QuantizePack<kFormat>(v[0], scale);
  const uint2 high = QuantizePack<kFormat>(v[1], scale);
  return make_uint4(low.x, low.y, high.x, high.y);
}
__device__ __forceinline__ uint32_t LargestOf(const Columns16& columns) {
  return RaiseMagnitude(RaiseMagnitude(0U, columns[0]), columns[1]);
}

// `bits` is of RaiseMagnitude; *amax may be absent.
__device__ __forceinline__ void RaiseAmaxOfWarp(float* amax, uint32_t bits) {
  if (amax == nullptr) {
    return;
  }
  const uint32_t largest = __reduce_max_sync(0xFFFFFFFF, MagnitudeOf<Bf16>(bits));
  if (Lane() == 0) {
    RaiseAmax(amax, __uint_as_float(largest));
  }
}

}  // namespace hearth::kernels::cuda::gated
