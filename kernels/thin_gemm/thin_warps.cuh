// The kernel of thin_gemm.h for every GPU with clusters. Rows of w are the rows of the matrix
// units' products, rows of x (tokens) their columns, so that few tokens waste little.
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
#include "kernels/thin_gemm/thin_sums.cuh"
#include "kernels/thin_gemm/thin_tiling.h"

namespace hearth::kernels::cuda::thin {

// The ring: who fills it, and what a warp does with a stage.
template <int kTokens, int kRows>
class Ring {
 public:
  static constexpr ThinTile kTile = {kTokens, kRows};
  static constexpr int kGroups = kTokens / 8;  // columns of a product
  using Products = float[2][kGroups][4];
  using Squares = float[kGroups];

  // `first_row`: of w, of the block.
  __device__ __forceinline__
  Ring(const Maps& maps, const Params& p, unsigned char* memory, TmaBarrier* full, int first_row)
      : maps_(maps), p_(p), memory_(memory), full_(full), first_row_(first_row) {}

  // One thread: initialises the barriers and asks for the weights of the first `ready` stages.
  __device__ __forceinline__ void Begin(int first, int ready) const {
    for (int slot = 0; slot < p_.stages; ++slot) {
      full_[slot].Init(1);
    }
    FenceBarrierInit();
    FenceForTma();
    for (int slot = 0; slot < ready; ++slot) {
      FillWeights(slot, first + slot);
    }
  }
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

  // sums += the warp's part of a stage. With a norm x comes weighed, and squares += those of tokens
  // lane / 4 and every eight further, of the warp's part of the depth. `at`: of the stage, among
  // the norm's weights.
  template <bool kNorm>
  __device__ __forceinline__ void Multiply(
      int slot, const InputNormWeights& norm, int at, Products& sums, Squares& squares) const {
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
        if constexpr (kNorm) {
          const int k = at + kt * 16 + static_cast<int>(threadIdx.x) % 4 * 2;
          const __nv_bfloat162 weights[2] = {norm.Pair(k), norm.Pair(k + 8)};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            b[i] = InputNormWeights::Weigh(b[i], weights[i % 2], squares[2 * pair + i / 2]);
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Mma(sums[half][2 * pair], a[half], b[0], b[1]);
          Mma(sums[half][2 * pair + 1], a[half], b[2], b[3]);
        }
      }
    }
  }

  // The block's stages, first to end of K's. All threads; they have passed FillWeights.
  template <bool kNorm>
  __device__ __forceinline__ void MultiplyAll(
      int first, int end, const InputNormWeights& norm, Products& sums, Squares& squares) const {
    int slot = 0;
    uint32_t parity = 0;
    for (int slice = first; slice < end; ++slice) {
      full_[slot].Wait(parity);
      Multiply<kNorm>(slot, norm, (slice - first) * kThinDepth, sums, squares);
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

// What the warps found: first those of each, [warps of depth][tokens][rows, pitch].
template <int kTokens, int kRows>
class WarpSums {
 public:
  static constexpr ThinTile kTile = {kTokens, kRows};
  using Found = FoundSums<kRows, kTile.pitch()>;

  __device__ __forceinline__ explicit WarpSums(float* memory) : sums_(memory) {}

  __device__ __forceinline__ const Found& sums() const { return sums_; }

  // After all warps have left the ring.
  __device__ __forceinline__ void Leave(const typename Ring<kTokens, kRows>::Products& sums) const {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    float* const at = sums_.At(warp / kTile.warps_of_rows() * kTokens + lane % 4 * 2,
                               warp % kTile.warps_of_rows() * 32 + lane / 4);
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

  // The sums of squares of the warps that have the first rows: [warps of depth][tokens].
  __device__ __forceinline__ void LeaveSquares(
      const typename Ring<kTokens, kRows>::Squares& squares, float* to) const {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int group = 0; group < kTokens / 8; ++group) {
      float sum = squares[group];
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      if (threadIdx.x % 4 == 0 && warp % kTile.warps_of_rows() == 0) {
        to[warp / kTile.warps_of_rows() * kTokens + group * 8 + threadIdx.x % 32 / 4] = sum;
      }
    }
  }
  // Over all of them, in the place of the first one's; after AddWarps.
  __device__ __forceinline__ void AddSquares(float* squares) const {
    if (threadIdx.x < kTokens) {
      float sum = squares[threadIdx.x];
#pragma unroll
      for (int warp = 1; warp < kTile.warps_of_depth(); ++warp) {
        sum += squares[warp * kTokens + threadIdx.x];
      }
      squares[threadIdx.x] = sum;
    }
  }
  // The sums over all warps, in the place of the first one's.
  __device__ __forceinline__ void AddWarps(int tokens) const {
    constexpr int kQuads = kRows / 4;
    __syncthreads();
    for (int i = threadIdx.x; i < tokens * kQuads; i += kThinThreads) {
      float* const at = sums_.At(i / kQuads, i % kQuads * 4);
      Quad sum = LoadPack<4>(at);
#pragma unroll
      for (int warp = 1; warp < kTile.warps_of_depth(); ++warp) {
        sum = Add(sum, LoadPack<4>(at + warp * kTokens * kTile.pitch()));
      }
      StorePack<4>(at, sum);
    }
  }

 private:
  Found sums_;
};

template <int kTokens, int kRows, bool kSwiglu, bool kNorm>
__global__ void __launch_bounds__(kThinThreads, ThinTile{kTokens, kRows}.most_resident())
    WarpsKernel(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
#if HEARTH_CLUSTER_CODE
  constexpr int kCols = kRows / Columns<kSwiglu, 4>::kParts;  // of y
  constexpr int kQuads = kCols / 4;
  extern __shared__ unsigned char raw[];
  __shared__ TmaBarrier full[kThinMostStages];
  constexpr ThinTile kTile = {kTokens, kRows};
  __shared__ float squares[kTile.squares()];
  static_assert(sizeof(full) + sizeof(squares) == kTile.fixed_bytes());
  const BlockPart block(p, raw, kCols);
  const int ready = min(block.end - block.first, p.stages);
  const Ring<kTokens, kRows> ring(maps, p, block.memory, full, block.first_col);
  const InputNormWeights norm(block.memory + kTile.ring_bytes(p.stages));
  if (threadIdx.x == 0) {
    PrefetchMap(maps.w);
    PrefetchMap(maps.x);
    ring.Begin(block.first, ready);
  }
  if constexpr (kNorm) {
    norm.Load(p, block.first, block.end);
  }
  block.PrefetchBias(p, kCols);
  TakeTurn();
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < ready; ++slot) {
      ring.FillTokens(slot, block.first + slot);
    }
  }
  __syncthreads();
  typename Ring<kTokens, kRows>::Products sums = {};
  typename Ring<kTokens, kRows>::Squares own = {};
  ring.template MultiplyAll<kNorm>(block.first, block.end, norm, sums, own);
  __syncthreads();
  const WarpSums<kTokens, kRows> found(reinterpret_cast<float*>(block.memory));
  found.Leave(sums);
  if constexpr (kNorm) {
    found.LeaveSquares(own, squares);
  }
  // Warps of all blocks in turn take 32 fours of columns of a token, or of neighbouring tokens: a
  // thread's columns are always the same.
  static_assert(kThinThreads % kQuads == 0);
  const int begin = (static_cast<int>(threadIdx.x) / 32 * p.splits + block.rank) * 32 +
                    static_cast<int>(threadIdx.x) % 32;
  const int row = begin % kQuads * 4;
  const Columns<kSwiglu, 4> columns(p, block.first_col + row);
  found.AddWarps(p.tokens);
  if constexpr (kNorm) {
    found.AddSquares(squares);
  }
  MeetCluster();
  for (int i = begin; i < p.tokens * kQuads; i += p.splits * kThinThreads) {
    const int token = i / kQuads;
    const float factor = kNorm ? RstdOfCluster(p, squares + token) : 1.0F;
    columns.Finish(token, factor, [&](int part) {
      return found.sums().OfCluster(token, row + part * kCols, p.splits);
    });
  }
  // No block ends while another reads its sums.
  MeetCluster();
#endif
}

}  // namespace hearth::kernels::cuda::thin
