// The kernel of thin_gemm.h. Rows of w are the rows of the matrix units' products, rows of x
// (tokens) their columns, so that few tokens waste little.
//
// TMA brings stages of both to a ring in shared memory, where eight warps multiply them: each has
// 32 of the block's rows and a part of the stage's depth. Sums of one element are added in a fixed
// order: over the stages in registers, over the warps in shared memory, and over the blocks of a
// cluster by way of one another's shared memory.
//
// The kernel is launched in turn (launch.cuh). It asks for all of w that the ring has room for
// before it waits for the kernel that makes x: for a small weight, that is all of it.
#pragma once

#include <cuda.h>

#include "kernels/attention/flash.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/util.cuh"
#include "kernels/swiglu/arithmetic.cuh"
#include "kernels/thin_gemm/thin_tiling.h"

namespace hearth::kernels::cuda::thin {

struct Maps {
  CUtensorMap w;  // boxes of half of a block's rows
  CUtensorMap x;  // boxes of all tokens
};

struct Params {
  const Bf16* bias;  // or null
  Bf16* y;           // [tokens, width]
  Bf16* gate_up;     // [tokens, 2 width], or null
  int32_t tokens;
  int32_t width;
  int32_t slices;
  int32_t splits;
  int32_t stages;
  // Rows of w from the first half of a block's rows to its second half: in SwiGLU these are gate
  // and up of the same columns.
  int32_t half_stride;
};

// Four neighbouring sums of a token.
using Quad = Pack<float, 4>;

__device__ __forceinline__ Quad AddQuads(const Quad& a, const Quad& b) {
  return {{a.at[0] + b.at[0], a.at[1] + b.at[1], a.at[2] + b.at[2], a.at[3] + b.at[3]}};
}
__device__ __forceinline__ Quad RoundQuad(const Quad& in) {
  return {{Rounded<Bf16>(in.at[0]), Rounded<Bf16>(in.at[1]), Rounded<Bf16>(in.at[2]),
           Rounded<Bf16>(in.at[3])}};
}

// The ring: who fills it, and what a warp does with a stage.
template <int kTokens, int kRows>
class Ring {
 public:
  static constexpr ThinTile kTile = {kTokens, kRows};
  static constexpr int kGroups = kTokens / 8;  // columns of a product
  using Sums = float[2][kGroups][4];

  // `first_row`: of w, of the block.
  __device__ __forceinline__
  Ring(const Maps& maps, const Params& p, unsigned char* memory, TmaBarrier* full, int first_row)
      : maps_(maps), p_(p), memory_(memory), full_(full), first_row_(first_row) {}

  // One thread: announces a stage and asks for its part of w, slice `slice` of K.
  __device__ __forceinline__ void FillWeights(int slot, int slice) const {
    full_[slot].ArriveAndExpect(kTile.stage_bytes());
    unsigned char* const to = memory_ + slot * kTile.stage_bytes();
    LoadTile(to, maps_.w, slice * kThinDepth, first_row_, full_[slot]);
    LoadTile(to + kRows / 2 * kRowBytes, maps_.w, slice * kThinDepth, first_row_ + p_.half_stride,
             full_[slot]);
  }
  // One thread: the rest of it.
  __device__ __forceinline__ void FillTokens(int slot, int slice) const {
    LoadTile(memory_ + slot * kTile.stage_bytes() + kRows * kRowBytes, maps_.x, slice * kThinDepth,
             0, full_[slot]);
  }

  // sums += the warp's part of a stage.
  __device__ __forceinline__ void Multiply(int slot, Sums& sums) const {
    constexpr int kSteps = kThinDepth / 16 / kTile.warps_of_depth();
    const int warp = threadIdx.x / 32;
    const uint32_t w = SharedAddress(memory_) + slot * kTile.stage_bytes();
    const uint32_t x = w + kRows * kRowBytes;
    const int row = warp % kTile.warps_of_rows() * 32;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int kt = warp / kTile.warps_of_rows() * kSteps + step;
      uint32_t a[2][4];
      LoadLeft<kThinDepth>(w, row, kt, a[0]);
      LoadLeft<kThinDepth>(w, row + 16, kt, a[1]);
#pragma unroll
      for (int pair = 0; pair < kGroups / 2; ++pair) {
        uint32_t b[4];
        LoadRightOfRows<kThinDepth>(x, pair * 16, kt, b);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Mma(sums[half][2 * pair], a[half], b[0], b[1]);
          Mma(sums[half][2 * pair + 1], a[half], b[2], b[3]);
        }
      }
    }
  }

  // The block's stages, first to end of K's. All threads; they have passed FillWeights.
  __device__ __forceinline__ void MultiplyAll(int first, int end, Sums& sums) const {
    int slot = 0;
    uint32_t parity = 0;
    for (int slice = first; slice < end; ++slice) {
      full_[slot].Wait(parity);
      Multiply(slot, sums);
      const int next = slice + p_.stages;
      if (next < end) {
        // All warps have read the stage.
        __syncthreads();
        if (threadIdx.x == 0) {
          FillWeights(slot, next);
          FillTokens(slot, next);
        }
      }
      if (++slot == p_.stages) {
        slot = 0;
        parity ^= 1;
      }
    }
  }

 private:
  static constexpr int kRowBytes = kThinDepth * 2;

  const Maps& maps_;
  const Params& p_;
  unsigned char* memory_;
  TmaBarrier* full_;
  int first_row_;
};

// What the warps found, where the ring was: [warps of depth][tokens][rows, pitch].
template <int kTokens, int kRows>
class FoundSums {
 public:
  static constexpr ThinTile kTile = {kTokens, kRows};

  __device__ __forceinline__ explicit FoundSums(float* memory) : memory_(memory) {}

  // After all warps have left the ring.
  __device__ __forceinline__ void Leave(const typename Ring<kTokens, kRows>::Sums& sums) const {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    float* const at = memory_ +
                      (warp / kTile.warps_of_rows() * kTokens + lane % 4 * 2) * kTile.pitch() +
                      warp % kTile.warps_of_rows() * 32 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int group = 0; group < kTokens / 8; ++group) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          at[(group * 8 + i % 2) * kTile.pitch() + half * 16 + i / 2 * 8] = sums[half][group][i];
        }
      }
    }
  }

  // The sums over all warps, in the place of the first one's.
  __device__ __forceinline__ void AddWarps(int tokens) const {
    constexpr int kQuads = kRows / 4;
    __syncthreads();
    for (int i = threadIdx.x; i < tokens * kQuads; i += kThinThreads) {
      float* const at = At(i / kQuads, i % kQuads * 4);
      Quad sum = LoadPack<4>(at);
#pragma unroll
      for (int warp = 1; warp < kTile.warps_of_depth(); ++warp) {
        sum = AddQuads(sum, LoadPack<4>(at + warp * kTokens * kTile.pitch()));
      }
      StorePack<4>(at, sum);
    }
  }

  // The sum over the blocks of the cluster, whose sums come four at a time: more registers than
  // that are not there.
  __device__ __forceinline__ Quad OfCluster(int token, int row, int splits) const {
    float* const own = At(token, row);
    Quad sum = LoadPack<4>(InBlock(own, 0));
#pragma unroll 1
    for (int first = 1; first < splits; first += kRanksAtOnce) {
      Quad parts[kRanksAtOnce];
#pragma unroll
      for (int i = 0; i < kRanksAtOnce; ++i) {
        if (first + i < splits) {
          parts[i] = LoadPack<4>(InBlock(own, first + i));
        }
      }
#pragma unroll
      for (int i = 0; i < kRanksAtOnce; ++i) {
        if (first + i < splits) {
          sum = AddQuads(sum, parts[i]);
        }
      }
    }
    return sum;
  }

 private:
  static constexpr int kRanksAtOnce = 4;

  __device__ __forceinline__ float* At(int token, int row) const {
    return memory_ + token * kTile.pitch() + row;
  }
  float* memory_;
};

// Four columns of y, from `col` on, that a thread finishes for several tokens.
template <bool kSwiglu>
class Columns {
 public:
  static constexpr int kParts = kSwiglu ? 2 : 1;  // rows of w that make a column

  __device__ __forceinline__ Columns(const Params& p, int col)
      : p_(p), col_(col), valid_(col < p.width), bias_{{0.0F, 0.0F, 0.0F, 0.0F}} {
    if (!kSwiglu && valid_ && p.bias != nullptr) {
      LoadFloats<4>(p.bias + col, bias_.at);
    }
  }

  // `row`: of the block's, of the first part.
  template <int kTokens, int kRows>
  __device__ __forceinline__ void Finish(const FoundSums<kTokens, kRows>& found,
                                         int token,
                                         int row) const {
    if (!valid_) {
      return;
    }
    const int64_t at = static_cast<int64_t>(token) * p_.width + col_;
    const Quad sum = found.OfCluster(token, row, p_.splits);
    if constexpr (kSwiglu) {
      const Quad gate = RoundQuad(sum);
      const Quad up = RoundQuad(found.OfCluster(token, row + kRows / 2, p_.splits));
      if (p_.gate_up != nullptr) {
        Bf16* const to = p_.gate_up + at + static_cast<int64_t>(token) * p_.width;
        StoreFloats<4>(to, gate.at);
        StoreFloats<4>(to + p_.width, up.at);
      }
      Quad y;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y.at[i] = SwigluOf<Bf16>(gate.at[i], up.at[i]);
      }
      StoreFloats<4>(p_.y + at, y.at);
    } else {
      StoreFloats<4>(p_.y + at, AddQuads(sum, bias_).at);
    }
  }

 private:
  const Params& p_;
  int col_;
  bool valid_;
  Quad bias_;
};

template <int kTokens, int kRows, bool kSwiglu>
__global__ void __launch_bounds__(kThinThreads, ThinTile{kTokens, kRows}.most_resident())
    Kernel(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
#if HEARTH_CLUSTER_CODE
  constexpr int kCols = kRows / Columns<kSwiglu>::kParts;  // of y
  constexpr int kQuads = kCols / 4;
  extern __shared__ unsigned char raw[];
  __shared__ TmaBarrier full[kThinMostStages];
  static_assert(sizeof(full) == kThinBarrierBytes);
  // The same offset in all blocks.
  unsigned char* const memory =
      raw + (kThinAlignment - SharedAddress(raw) % kThinAlignment) % kThinAlignment;
  const int rank = static_cast<int>(blockIdx.x) % p.splits;
  const int first_col = static_cast<int>(blockIdx.x) / p.splits * kCols;
  const int first = p.slices * rank / p.splits;
  const int end = p.slices * (rank + 1) / p.splits;
  const int ready = min(end - first, p.stages);
  const Ring<kTokens, kRows> ring(maps, p, memory, full, first_col);
  if (threadIdx.x == 0) {
    PrefetchMap(maps.w);
    PrefetchMap(maps.x);
    for (int slot = 0; slot < p.stages; ++slot) {
      full[slot].Init(1);
    }
    FenceBarrierInit();
    FenceForTma();
    for (int slot = 0; slot < ready; ++slot) {
      ring.FillWeights(slot, first + slot);
    }
  }
  if (!kSwiglu && p.bias != nullptr && threadIdx.x < kQuads &&
      first_col + static_cast<int>(threadIdx.x) * 4 < p.width) {
    PrefetchToL2(p.bias + first_col + threadIdx.x * 4);
  }
  TakeTurn();
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < ready; ++slot) {
      ring.FillTokens(slot, first + slot);
    }
  }
  __syncthreads();
  typename Ring<kTokens, kRows>::Sums sums = {};
  ring.MultiplyAll(first, end, sums);
  __syncthreads();
  const FoundSums<kTokens, kRows> found(reinterpret_cast<float*>(memory));
  found.Leave(sums);
  // Warps of all blocks in turn take 32 fours of columns of a token, or of neighbouring tokens: a
  // thread's columns are always the same.
  static_assert(kThinThreads % kQuads == 0);
  const int begin = (static_cast<int>(threadIdx.x) / 32 * p.splits + rank) * 32 +
                    static_cast<int>(threadIdx.x) % 32;
  const int row = begin % kQuads * 4;
  const Columns<kSwiglu> columns(p, first_col + row);
  found.AddWarps(p.tokens);
  MeetCluster();
  for (int i = begin; i < p.tokens * kQuads; i += p.splits * kThinThreads) {
    columns.Finish(found, i / kQuads, row);
  }
  // No block ends while another reads its sums.
  MeetCluster();
#endif
}

}  // namespace hearth::kernels::cuda::thin
