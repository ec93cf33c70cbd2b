// The kernel of thin_gemm.h for GPUs whose warpgroups multiply from shared memory (wgmma). Tokens
// are the rows of their products and rows of w the columns, of which there can be any number of
// eights: so many that every multiprocessor gets an equal part of w.
//
// A warp brings stages of both to a ring in shared memory by TMA. A warpgroup multiplies, and its
// sums stay in registers until the end of K. The blocks of a cluster divide K, leave their sums in
// shared memory, and add them as those of thin_warps.cuh do; a block alone finishes what it has in
// registers. The launch in turn is that of thin_warps.cuh.
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

// A barrier for each stage that is there, and one for each that nobody reads any more.
struct GroupBarriers {
  TmaBarrier full[kThinMostGroupStages];
  TmaBarrier empty[kThinMostGroupStages];
};

template <int kRows, bool kSwiglu>
class GroupRing {
 public:
  static constexpr ThinTile kTile = {kThinGroupTokens, kRows, true};
  using Products = float[kRows / 2];

  // `first_row`: of w, of the block; its stages are first to end of K's.
  __device__ __forceinline__ GroupRing(const Maps& maps,
                                       const Params& p,
                                       unsigned char* memory,
                                       GroupBarriers& barriers,
                                       int first_row,
                                       int first,
                                       int end)
      : maps_(maps),
        p_(p),
        memory_(memory),
        barriers_(barriers),
        first_row_(first_row),
        first_(first),
        end_(end) {}

  // One thread, before the others use the barriers: initialises them and asks for the weights of
  // the first stages.
  __device__ __forceinline__ void Begin() const {
    for (int slot = 0; slot < p_.stages; ++slot) {
      barriers_.full[slot].Init(1);
      barriers_.empty[slot].Init(kGroupWarps);
    }
    FenceBarrierInit();
    FenceForTma();
    for (int slot = 0; slot < Ready(); ++slot) {
      FillWeights(slot, first_ + slot);
    }
  }
  // The same thread, when x is there: the rest of those, and all later stages.
  __device__ __forceinline__ void FillAll() const {
    for (int slot = 0; slot < Ready(); ++slot) {
      FillTokens(slot, first_ + slot);
    }
    int slot = 0;
    uint32_t parity = 0;
    for (int slice = first_ + Ready(); slice < end_; ++slice) {
      barriers_.empty[slot].Wait(parity);
      FillWeights(slot, slice);
      FillTokens(slot, slice);
      Next(slot, parity);
    }
  }

  // A warp of the warpgroup: its sums over all stages, from zeros.
  __device__ __forceinline__ void MultiplyAll(Products& sums) const {
    int slot = 0;
    int before = 0;
    uint32_t parity = 0;
    for (int slice = first_; slice < end_; ++slice) {
      barriers_.full[slot].Wait(parity);
      const uint64_t a = OperandAlongK(StageAt(slot));
      const uint64_t b = OperandAlongK(StageAt(slot) + kTile.tokens * kRowBytes);
      BeginProducts();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        AddProductBf16(sums, a + i * kStep, b + i * kStep);
      }
      CommitProducts();
      if (slice > first_) {
        // Those of the stage before have ended.
        WaitProducts<1>();
        Release(before);
      }
      before = slot;
      Next(slot, parity);
    }
    WaitProducts<0>();
  }
  // The same with the norm. squares += those of the thread's parts of tokens lane / 4 and 8 further
  // of the warp's.
  __device__ __forceinline__ void MultiplyAll(const InputNormWeights& norm,
                                              Products& sums,
                                              float (&squares)[2]) const {
    int slot = 0;
    uint32_t parity = 0;
    for (int slice = first_; slice < end_; ++slice) {
      barriers_.full[slot].Wait(parity);
      const uint64_t b = OperandAlongK(StageAt(slot) + kTile.tokens * kRowBytes);
      uint32_t a[kSteps][4];
      LoadWeighed(norm, slot, slice - first_, a, squares);
      BeginProducts();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        AddProductBf16(sums, a[i], b + i * kStep);
      }
      CommitProducts();
      WaitProducts<0>();
      Release(slot);
      Next(slot, parity);
    }
  }

 private:
  static constexpr int kRowBytes = kThinDepth * 2;
  static constexpr int kGroupWarps = 4;
  static constexpr int kSteps = kThinDepth / 16;  // products of a stage
  static constexpr int kStep = 2;                 // 32 bytes along k, in the descriptors' units
  static constexpr int kBoxes = kSwiglu ? 2 : 1;  // gate and up
  static_assert(kRows % (8 * kBoxes) == 0, "boxes begin where the swizzle does");

  __device__ __forceinline__ uint32_t StageAt(int slot) const {
    return SharedAddress(memory_) + slot * kTile.stage_bytes();
  }
  // The warp's tokens of a stage, number `number` of the block's, times the norm's weights.
  __device__ __forceinline__ void LoadWeighed(const InputNormWeights& norm,
                                              int slot,
                                              int number,
                                              uint32_t (&a)[kSteps][4],
                                              float (&squares)[2]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      LoadLeft<kThinDepth>(StageAt(slot), static_cast<int>(threadIdx.x) / 32 * 16, i, a[i]);
      const int at = number * kThinDepth + i * 16 + lane % 4 * 2;
      const __nv_bfloat162 weights[2] = {norm.Pair(at), norm.Pair(at + 8)};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        a[i][j] = InputNormWeights::Weigh(a[i][j], weights[j / 2], squares[j % 2]);
      }
    }
  }
  __device__ __forceinline__ int Ready() const {
    return min(end_ - first_, p_.stages);
  }
  __device__ __forceinline__ void Next(int& slot, uint32_t& parity) const {
    if (++slot == p_.stages) {
      slot = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void FillTokens(int slot, int slice) const {
    LoadTile(memory_ + slot * kTile.stage_bytes(), maps_.x, slice * kThinDepth, 0,
             barriers_.full[slot]);
  }
  // Announces the whole stage.
  __device__ __forceinline__ void FillWeights(int slot, int slice) const {
    TmaBarrier& full = barriers_.full[slot];
    full.ArriveAndExpect(kTile.stage_bytes());
    unsigned char* to = memory_ + slot * kTile.stage_bytes() + kTile.tokens * kRowBytes;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      LoadTile(to, maps_.w, slice * kThinDepth, first_row_ + box * p_.half_stride, full);
      to += kRows / kBoxes * kRowBytes;
    }
  }
  // The warp has read the stage.
  __device__ __forceinline__ void Release(int slot) const {
    if (threadIdx.x % 32 == 0) {
      barriers_.empty[slot].Arrive();
    }
  }

  const Maps& maps_;
  const Params& p_;
  unsigned char* memory_;
  GroupBarriers& barriers_;
  int first_row_;
  int first_;
  int end_;
};

// Where a thread's sums are: sums[4 j + 2 half + i] is that of token + 8 half and of row 8 j +
// column + i of the block's. Each of four warps has 16 tokens.
struct GroupPlace {
  int token = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  int column = static_cast<int>(threadIdx.x) % 4 * 2;
};

// The squares of the thread's two tokens over the four lanes that have a part of each.
__device__ __forceinline__ void AddLanes(float (&squares)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    squares[half] += __shfl_xor_sync(0xFFFFFFFF, squares[half], 1);
    squares[half] += __shfl_xor_sync(0xFFFFFFFF, squares[half], 2);
  }
}

// The warpgroup's sums and squares to shared memory.
template <int kRows, int kPitch>
__device__ __forceinline__ void LeaveSums(const float (&sums)[kRows / 2],
                                          const float (&squares)[2],
                                          const FoundSums<kRows, kPitch>& found,
                                          float* found_squares) {
  const GroupPlace place;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* const to = found.At(place.token + half * 8, place.column);
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      StorePack<2>(to + j * 8, Sums<2>{{sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]}});
    }
    if (place.column == 0) {
      found_squares[place.token + half * 8] = squares[half];
    }
  }
}

// The warpgroup's sums to y, where no other block has a part of them. `first_col`: of the block.
template <int kRows, bool kSwiglu, bool kNorm>
__device__ __forceinline__ void FinishAlone(const Params& p,
                                            const float (&sums)[kRows / 2],
                                            const float (&squares)[2],
                                            int first_col) {
  constexpr int kEights = kRows / Columns<kSwiglu, 2>::kParts / 8;
  const GroupPlace place;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = place.token + half * 8;
    if (token < p.tokens) {
      const float factor = kNorm ? RstdOf(p, squares[half]) : 1.0F;
#pragma unroll
      for (int j = 0; j < kEights; ++j) {
        Columns<kSwiglu, 2>(p, first_col + j * 8 + place.column)
            .Finish(token, factor, [&](int part) {
              const int at = 4 * (j + part * kEights) + 2 * half;
              return Sums<2>{{sums[at], sums[at + 1]}};
            });
      }
    }
  }
}

template <int kRows, bool kSwiglu, bool kNorm>
__global__ void __launch_bounds__(ThinTile{kThinGroupTokens, kRows, true}.threads(),
                                  ThinTile{kThinGroupTokens, kRows, true}.most_resident())
    GroupsKernel(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
#if HEARTH_HOPPER_CODE
  using GroupsRing = GroupRing<kRows, kSwiglu>;
  constexpr ThinTile kTile = GroupsRing::kTile;
  constexpr int kCols = kRows / Columns<kSwiglu, 4>::kParts;  // of y
  constexpr int kQuads = kCols / 4;
  constexpr int kFirstFiller = kTile.threads() - 32;
  extern __shared__ unsigned char raw[];
  __shared__ GroupBarriers barriers;
  __shared__ float squares[kTile.squares()];
  static_assert(sizeof(barriers) + sizeof(squares) == kTile.fixed_bytes());
  const BlockPart block(p, raw, kCols);
  const GroupsRing ring(maps, p, block.memory, barriers, block.first_col, block.first, block.end);
  const InputNormWeights norm(block.memory + kTile.ring_bytes(p.stages));
  const bool fills = threadIdx.x == kFirstFiller;
  if (fills) {
    PrefetchMap(maps.w);
    PrefetchMap(maps.x);
    ring.Begin();
  }
  if constexpr (kNorm) {
    norm.Load(p, block.first, block.end);
  }
  block.PrefetchBias(p, kCols);
  TakeTurn();
  __syncthreads();
  const FoundSums<kRows, kTile.pitch()> found(reinterpret_cast<float*>(block.memory));
  if (threadIdx.x < kFirstFiller) {
    typename GroupsRing::Products sums = {};
    float own_squares[2] = {};
    if constexpr (kNorm) {
      ring.MultiplyAll(norm, sums, own_squares);
      AddLanes(own_squares);
    } else {
      ring.MultiplyAll(sums);
    }
    if (p.splits == 1) {
      FinishAlone<kRows, kSwiglu, kNorm>(p, sums, own_squares, block.first_col);
      return;
    }
    // All warps have left the ring.
    NamedBarrier(1, kFirstFiller);
    LeaveSums(sums, own_squares, found, squares);
  } else if (fills) {
    ring.FillAll();
  }
  if (p.splits == 1) {
    return;
  }
  __syncwarp();
  MeetCluster();
  // Warps of all blocks in turn take 32 fours of columns of a token, or of neighbouring tokens.
  const int begin = (static_cast<int>(threadIdx.x) / 32 * p.splits + block.rank) * 32 +
                    static_cast<int>(threadIdx.x) % 32;
  for (int i = begin; i < p.tokens * kQuads; i += p.splits * kTile.threads()) {
    const int token = i / kQuads;
    const int row = i % kQuads * 4;
    const float factor = kNorm ? RstdOfCluster(p, squares + token) : 1.0F;
    Columns<kSwiglu, 4>(p, block.first_col + row).Finish(token, factor, [&](int part) {
      return found.OfCluster(token, row + part * kCols, p.splits);
    });
  }
  // No block ends while another reads its sums.
  MeetCluster();
#endif
}

}  // namespace hearth::kernels::cuda::thin
